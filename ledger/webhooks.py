"""Webhooks on their way: from the outbox to deliveries, claims, attempts, the retry schedule.

State lives in PostgreSQL only. A claim is a lease: it moves `next_attempt_at` to its own end, so
that a sender that dies loses nothing, and that same time is the claim's token: whoever records
later than it lasted cannot undo what the next sender did. Nothing here opens a socket.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from sqlalchemy import Connection

from ledger import history, roll_up, signing
from ledger.database import driver as driver_of
from ledger.roll_up import RollUp
from ledger.secrets import KeyRing
from schema.wire.common import public_id
from schema.wire.webhooks import Envelope

_log = structlog.get_logger()

PAUSES: Final = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
"""How long to wait after the first, second, ... failed attempt; after the tenth, no more."""

_RENDER_AGAIN_AFTER: Final = timedelta(minutes=1)
_RETURNED_AS_KNOWN: Final = 409  # The receiver has had it before: what we wanted.


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A webhook claimed for one attempt, until `leased_until` and no longer."""

    id: UUID
    customer_id: UUID
    platform_id: UUID
    type: str
    subject_id: UUID
    url: str
    body: bytes
    attempts: int  # Made before this claim.
    leased_until: datetime

    @property
    def webhook_id(self) -> str:
        """What the receiver knows it by, the same in every attempt."""
        return public_id("Webhook", self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of sending a webhook once; without a status there is an error."""

    at: datetime
    ended_at: datetime
    duration_ms: int
    status: int | None
    error: str | None
    response_head: str | None

    @property
    def delivered(self) -> bool:
        """Whether the receiver has it: any 2xx, or it had taken it before (409)."""
        if self.status is None:
            return False
        return 200 <= self.status < 300 or self.status == _RETURNED_AS_KNOWN  # noqa: PLR2004


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much a sender can take on: in all, for most platforms, and for some by name.

    `busy` names resources of which it is sending a webhook just now: what else there is to tell
    of them waits, so that it normally arrives in order.
    """

    total: int
    share: int
    shares: Mapping[UUID, int]
    busy: Collection[UUID]


@dataclass(frozen=True, slots=True)
class Signer:
    """A platform's keys in the open: keep it for a short time, and never log it."""

    private_key: EllipticCurvePrivateKey = field(repr=False)
    secret: str = field(repr=False)

    def sign(self, body: bytes, *, webhook_id: str, at: datetime) -> dict[str, str]:
        """Return the four headers that prove `body`."""
        return signing.sign(
            body,
            webhook_id=webhook_id,
            at=at,
            private_key=self.private_key,
            secret=self.secret,
        )


class _Row(NamedTuple):
    """A row of the outbox, and where its platform wants it."""

    id: UUID
    customer_id: UUID
    platform_id: UUID
    type: str
    subject_id: UUID
    sequence: int | None
    data: dict[str, Any] | None
    recorded_at: datetime
    url: str | None


def signer(connection: Connection, platform_id: UUID, keys: KeyRing) -> Signer:
    """Return what signs the webhooks of a platform.

    Raises: SecretsError when the server key is not the one that its keys are encrypted with.
    """
    row = driver_of(connection).execute(_KEYS, [platform_id]).fetchone()
    assert row is not None, f"no platform {platform_id}"
    signing_key, secret = row
    return Signer(
        private_key=signing.load_private_key(keys.decrypt(signing_key)),
        secret=keys.decrypt(secret).decode(),
    )


# --- from the outbox to deliveries -------------------------------------------------------------


def dispatch(connection: Connection, *, limit: int, at: datetime) -> int:
    """Make deliveries of the oldest rows of the outbox, at most `limit`; return how many.

    The body is rendered here, once: every attempt sends these bytes. Where it goes is decided
    here as well. A row that cannot be rendered stays in the outbox, is logged, and is tried again
    in a minute: it stops only itself. The number of statements is the same for 1 row and for 500.
    """
    driver = driver_of(connection)
    with driver.cursor(binary=True) as cursor:
        rows = sorted(map(_Row._make, cursor.execute(_CLAIM_OUTBOX, [at, limit]).fetchall()))
    told = _render(driver, rows)
    if len(told) < len(rows):
        rendered = {row.id for row, _ in told}
        _put_off(driver, [row for row in rows if row.id not in rendered], at)
    if told:
        _insert(driver, told, at)
        driver.execute(_DELETE_OUTBOX, [[r.id for r, _ in told], [r.customer_id for r, _ in told]])
    return len(told)


def _put_off(driver: psycopg.Connection[Any], rows: Sequence[_Row], at: datetime) -> None:
    keys = [row.id for row in rows], [row.customer_id for row in rows]
    driver.execute(_PUT_OFF, [at + _RENDER_AGAIN_AFTER, *keys])


def _render(driver: psycopg.Connection[Any], rows: Sequence[_Row]) -> list[tuple[_Row, str]]:
    folded = _fold(driver, rows)
    told: list[tuple[_Row, str]] = []
    for row in rows:
        try:
            told.append((row, _body(row, folded)))
        except (ValueError, LookupError):
            _log.exception("webhook cannot be rendered", webhook=str(row.id), type=row.type)
    return told


def _fold(driver: psycopg.Connection[Any], rows: Iterable[_Row]) -> dict[history.Place, RollUp]:
    places = [
        (row.subject_id, row.sequence)
        for row in rows
        if row.data is None and row.sequence is not None
    ]
    if not places:
        return {}
    try:
        return history.at(driver, places)
    except (ValueError, LookupError):
        # One of them has an event that this version does not know; find out which.
        return {place: found for one in places for place, found in _fold_one(driver, one)}


def _fold_one(
    driver: psycopg.Connection[Any], place: history.Place
) -> Iterable[tuple[history.Place, RollUp]]:
    try:
        return history.at(driver, [place]).items()
    except (ValueError, LookupError):
        return ()


def _body(row: _Row, folded: Mapping[history.Place, RollUp]) -> str:
    data = row.data
    if data is None:
        if row.sequence is None:
            raise ValueError("a webhook needs data, or the sequence of an event to fold up to")
        data = roll_up.render(folded[row.subject_id, row.sequence]).wire()
    return Envelope(id=row.id, type=row.type, timestamp=row.recorded_at, data=data).body().decode()


def _insert(
    driver: psycopg.Connection[Any], told: Iterable[tuple[_Row, str]], at: datetime
) -> None:
    with driver.cursor() as cursor, cursor.copy(_COPY_DELIVERIES) as copy:
        copy.set_types(list(_DELIVERY_TYPES.values()))
        for row, body in told:
            state, due = ("PENDING", at) if row.url else ("NO_ENDPOINT", None)
            copy.write_row((*row[:6], row.url, body, state, 0, due, at))


# --- claims and attempts -----------------------------------------------------------------------


def claim_due(
    connection: Connection, *, room: Room, at: datetime, lease: timedelta
) -> list[Delivery]:
    """Claim what is due, as far as there is `room`, for as long as `lease`.

    Shape: oldest first; the webhooks of one resource in the order in which they happened, unless
    an earlier one waits for its retry.
    """
    leased_until = at + lease
    arguments = {
        "at": at,
        "leased_until": leased_until,
        "total": room.total,
        "share": room.share,
        "platforms": list(room.shares),
        "shares": list(room.shares.values()),
        "busy": list(room.busy),
    }
    driver = driver_of(connection)
    driver.execute(_CLAIM_SETTINGS)
    with driver.cursor(binary=True) as cursor:
        rows = sorted(cursor.execute(_CLAIM_DELIVERIES, arguments).fetchall())
    return [
        Delivery(
            id=key,
            customer_id=customer_id,
            platform_id=platform_id,
            type=kind,
            subject_id=subject_id,
            url=url,
            body=body.encode(),
            attempts=attempts,
            leased_until=leased_until,
        )
        for _due, key, customer_id, platform_id, kind, subject_id, url, body, attempts in rows
    ]


def record_attempt(
    connection: Connection, delivery: Delivery, attempt: Attempt, *, retry_at: datetime | None
) -> None:
    """Keep `attempt`, and what becomes of its delivery: delivered, tried again, or given up.

    An attempt that ends after its lease is kept too. If it delivered, that stands; if it failed,
    it changes nothing: somebody else has the delivery now.
    """
    driver_of(connection).execute(
        _RECORD_ATTEMPT,
        {
            "id": delivery.id,
            "customer_id": delivery.customer_id,
            "leased_until": delivery.leased_until,
            "delivered": attempt.delivered,
            "retry_at": retry_at,
            "at": attempt.at,
            "ended_at": attempt.ended_at,
            "duration_ms": attempt.duration_ms,
            "status": attempt.status,
            "error": attempt.error,
            "response_head": attempt.response_head,
        },
    )


def next_attempt_at(failed: int, *, at: datetime, scale: float, jitter: float) -> datetime | None:
    """Return when to try again after `failed` attempts, the last at `at`; None: no more.

    Units: `scale` and `jitter` are factors of the pause; 1 and 1 follow the schedule exactly.
    """
    if failed > len(PAUSES):
        return None
    return at + PAUSES[failed - 1] * scale * jitter


_KEYS: Final = "SELECT signing_key, webhook_secret FROM platforms WHERE id = %s"

_CLAIM_OUTBOX: Final = """
    SELECT o.id, o.customer_id, o.platform_id, o.type, o.subject_id, o.sequence, o.data,
        o.recorded_at, p.webhook_endpoint
    FROM (
        SELECT * FROM outbox WHERE retry_at IS NULL OR retry_at <= %s
        ORDER BY id, customer_id LIMIT %s FOR UPDATE SKIP LOCKED
    ) o
    LEFT JOIN platforms p ON p.id = o.platform_id
"""

_PUT_OFF: Final = """
    UPDATE outbox o SET retry_at = %s FROM unnest(%s::uuid[], %s::uuid[]) AS off (id, customer_id)
    WHERE o.id = off.id AND o.customer_id = off.customer_id
"""

_DELETE_OUTBOX: Final = """
    DELETE FROM outbox o USING unnest(%s::uuid[], %s::uuid[]) AS told (id, customer_id)
    WHERE o.id = told.id AND o.customer_id = told.customer_id
"""

_DELIVERY_TYPES: Final = {
    "id": "uuid",
    "customer_id": "uuid",
    "platform_id": "uuid",
    "type": "text",
    "subject_id": "uuid",
    "sequence": "int8",
    "url": "text",
    "body": "text",
    "state": "text",
    "attempts": "int4",
    "next_attempt_at": "timestamptz",
    "created_at": "timestamptz",
}

_COPY_DELIVERIES: Final = (
    f"COPY webhook_deliveries ({', '.join(_DELIVERY_TYPES)}) FROM STDIN (FORMAT BINARY)"
)

# A claim that a crash of PostgreSQL forgets is made again, so nobody waits for the disk. And the
# planner, which cannot know how few rows a share is, would compile for 200 ms what runs in one.
_CLAIM_SETTINGS: Final = (
    "SELECT set_config('synchronous_commit', 'off', true), set_config('jit', 'off', true)"
)

# One look into the index for each platform, so that a long backlog of one never hides another.
_CLAIM_DELIVERIES: Final = """
    WITH due AS MATERIALIZED (
        SELECT oldest.*
        FROM platforms p
        LEFT JOIN unnest(%(platforms)s::uuid[], %(shares)s::int4[]) AS r (id, share) ON r.id = p.id
        CROSS JOIN LATERAL (
            SELECT w.id, w.customer_id, w.next_attempt_at
            FROM webhook_deliveries w
            WHERE w.platform_id = p.id AND w.next_attempt_at <= %(at)s
                AND w.subject_id <> ALL (%(busy)s::uuid[])
            ORDER BY w.next_attempt_at, w.id
            LIMIT coalesce(r.share, %(share)s)
            FOR UPDATE SKIP LOCKED
        ) oldest
        ORDER BY oldest.next_attempt_at, oldest.id
        LIMIT %(total)s
    )
    UPDATE webhook_deliveries w SET next_attempt_at = %(leased_until)s
    FROM due WHERE w.id = due.id AND w.customer_id = due.customer_id
    RETURNING due.next_attempt_at, w.id, w.customer_id, w.platform_id, w.type, w.subject_id,
        w.url, w.body, w.attempts
"""

# "Ours": the lease is still the one that the attempt was made under.
_RECORD_ATTEMPT: Final = """
    WITH counted AS (
        UPDATE webhook_deliveries SET
            attempts = attempts + 1,
            state = CASE
                WHEN %(delivered)s THEN 'DELIVERED'
                WHEN next_attempt_at = %(leased_until)s AND %(retry_at)s::timestamptz IS NULL
                    THEN 'FAILED'
                ELSE state END,
            next_attempt_at = CASE
                WHEN %(delivered)s THEN NULL
                WHEN next_attempt_at = %(leased_until)s THEN %(retry_at)s::timestamptz
                ELSE next_attempt_at END,
            delivered_at = CASE
                WHEN %(delivered)s THEN coalesce(delivered_at, %(ended_at)s)
                ELSE delivered_at END,
            last_status = CASE
                WHEN %(delivered)s OR next_attempt_at = %(leased_until)s THEN %(status)s::int2
                ELSE last_status END
        WHERE id = %(id)s AND customer_id = %(customer_id)s
        RETURNING id, customer_id, attempts
    )
    INSERT INTO webhook_attempts (delivery_id, number, customer_id, attempted_at, duration_ms,
        status, error, response_head)
    SELECT id, attempts, customer_id, %(at)s, %(duration_ms)s, %(status)s::int2, %(error)s::text,
        %(response_head)s::text
    FROM counted
"""
