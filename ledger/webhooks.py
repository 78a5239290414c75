"""Webhooks on their way: from the outbox to deliveries, claims, attempts, the retry schedule.

State lives in PostgreSQL only. A claim is a lease: it moves `next_attempt_at` to its own end, so
that a sender that dies loses nothing, and that same time is the claim's token: whoever records
later than it lasted cannot undo what the next sender did. Nothing here opens a socket.

Where order is promised (FIFO), only the first of what is to be told of a resource has a time; the
others have `LATER`, and whatever ends one gives the next its time in the same database
transaction. A lock on endpoint and resource keeps those apart who end one and who add one.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from psycopg.types.json import Json
from sqlalchemy import Connection

from ledger import accounts, history, roll_up, signing
from ledger.database import driver as driver_of
from ledger.ids import NIL, new_id
from ledger.roll_up import RollUp
from ledger.secrets import KeyRing
from schema.wire.common import public_id
from schema.wire.webhook_endpoints import GivenUpReason, WebhookEndpointDisabled
from schema.wire.webhooks import WebhookType, envelope

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

LATER: Final = datetime(9999, 1, 1, tzinfo=UTC)
"""From here on a time says only who is next: what waits for an earlier one of its resource."""

GIVES_UP_AFTER: Final = timedelta(days=5)
"""How long an endpoint may do nothing but fail before it is disabled."""

DISPATCH_LOCK: Final = 0x77656268
"""Advisory lock of whoever dispatches, or changes which endpoints there are: one at a time."""

_RENDER_AGAIN_AFTER: Final = timedelta(minutes=1)
_LONGEST_RETRY_AFTER: Final = timedelta(hours=1)
_RETURNED_AS_KNOWN: Final = 409  # The receiver has had it before: what we wanted.
_GONE: Final = 410
_SAYS_WHEN: Final = frozenset({429, 503})


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A webhook claimed for one attempt, until `leased_until` and no longer."""

    id: UUID
    webhook: UUID
    customer_id: UUID
    platform_id: UUID
    type: str
    subject_id: UUID
    body: bytes
    attempts: int  # Made before this claim, since it was last asked for.
    leased_until: datetime
    endpoint_id: UUID
    endpoint_version: datetime  # When the endpoint was last changed.
    url: str
    is_fifo: bool
    failing_since: datetime | None

    @property
    def webhook_id(self) -> str:
        """What the receiver knows it by, the same in every attempt."""
        return public_id("Webhook", self.webhook)

    @property
    def queue(self) -> "Queue":
        """What it is kept in order with, as far as order is kept."""
        return self.endpoint_id, self.subject_id

    @property
    def is_retried(self) -> bool:
        """Whether a failure is followed by another attempt: a test says once how it went."""
        return self.type != WebhookType.TEST


Queue = tuple[UUID, UUID]
"""An endpoint, and a resource of which it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of sending a webhook once; without a status there is an error."""

    at: datetime
    ended_at: datetime
    duration_ms: int
    status: int | None
    error: str | None
    response_head: str | None
    retry_after: str | None = None  # As the receiver wrote it.

    @property
    def is_gone(self) -> bool:
        """Whether the receiver wants nothing any more (410)."""
        return self.status == _GONE

    @property
    def delivered(self) -> bool:
        """Whether the receiver has it: any 2xx, or it had taken it before (409)."""
        if self.status is None:
            return False
        return 200 <= self.status < 300 or self.status == _RETURNED_AS_KNOWN  # noqa: PLR2004


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much a sender can take on: in all, for some endpoints by name, and for each other one.

    All the others together may have `others`, and those of them that do nothing but fail have
    `failing` instead, so that the dead never stand before those of whom nothing is known.

    `turns` says when endpoints were last sent something, the higher the later: where there is not
    room for all, whoever has waited longest for a turn is first, however much others have waiting.

    `busy` names queues of which it is sending a webhook just now: what else there is to tell in
    them waits, so that it normally arrives in order.
    """

    total: int
    share: int
    shares: Mapping[UUID, int]
    others: int
    failing: int
    busy: Collection[Queue]
    turns: Mapping[UUID, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Signer:
    """An endpoint's keys in the open: keep it for a short time, and never log it."""

    private_key: EllipticCurvePrivateKey = field(repr=False)
    secret: str = field(repr=False)
    former_secrets: tuple[str, ...] = field(default=(), repr=False)

    def sign(self, body: bytes, *, webhook_id: str, at: datetime) -> dict[str, str]:
        """Return the four headers that prove `body`."""
        return signing.sign(
            body,
            webhook_id=webhook_id,
            at=at,
            private_key=self.private_key,
            secret=self.secret,
            former_secrets=self.former_secrets,
        )


class _Row(NamedTuple):
    """A row of the outbox."""

    id: UUID
    customer_id: UUID
    platform_id: UUID
    type: str
    subject_id: UUID
    sequence: int | None
    data: dict[str, Any] | None
    recorded_at: datetime


class _Endpoint(NamedTuple):
    """As much of an endpoint as decides what it is told."""

    id: UUID
    platform_id: UUID
    event_types: list[str]
    is_fifo: bool


class _Told(NamedTuple):
    """A row with its body, and an endpoint that wants it; None: there is no endpoint at all."""

    row: _Row
    body: str
    endpoint: _Endpoint | None


def signer(connection: Connection, endpoint_id: UUID, keys: KeyRing, *, at: datetime) -> Signer:
    """Return what signs the webhooks of an endpoint at `at`.

    Raises: SecretsError when the server key is not the one that its keys are encrypted with.
    """
    arguments = {"endpoint": endpoint_id, "at": at}
    row = driver_of(connection).execute(_KEYS, arguments).fetchone()
    assert row is not None, f"no endpoint {endpoint_id}"
    signing_key, secret, former_secret = row
    return signer_of(signing_key, secret, former_secret, keys)


def signer_of(
    signing_key: bytes, secret: bytes, former_secret: bytes | None, keys: KeyRing
) -> Signer:
    """Return the keys that these are when they are decrypted.

    Raises: SecretsError as `signer` does.
    """
    return Signer(
        private_key=signing.load_private_key(keys.decrypt(signing_key)),
        secret=keys.decrypt(secret).decode(),
        former_secrets=(keys.decrypt(former_secret).decode(),) if former_secret else (),
    )


def wants(event_types: Collection[str], kind: str) -> bool:
    """Return whether a filter lets `kind` pass: by name, by `<GROUP>.*`, or because it is empty."""
    return not event_types or kind in event_types or f"{kind.partition('.')[0]}.*" in event_types


# --- from the outbox to deliveries -------------------------------------------------------------


def dispatch(connection: Connection, *, limit: int, at: datetime) -> int:
    """Make deliveries of the oldest rows of the outbox, at most `limit`; return how many rows.

    One for each endpoint that wants to be told, of as many rows as make `limit` deliveries: a
    platform with many endpoints takes more turns, not a longer one. The body is rendered here,
    once: every attempt sends these bytes. A row that cannot be rendered stays in the outbox, is
    logged, and is tried again in a minute, when nothing new waits: it stops only itself, and is
    counted. The number of statements is the same for 1 row and for 500. One at a time: a second
    dispatcher would overtake the first with the next event of a resource.
    """
    driver = driver_of(connection)
    driver.execute("SELECT pg_advisory_xact_lock(%s)", [DISPATCH_LOCK])
    claimed = _claim_outbox(driver, limit, at)
    if not claimed:
        return 0
    fanned_out = _fan_out(driver, claimed, limit)
    rendered = _render(driver, [row for row, _ in fanned_out])
    off = [row for row, _ in fanned_out if row.id not in rendered]
    if off:
        _put_off(driver, off, at)
    if rendered:
        told = [(row, endpoints) for row, endpoints in fanned_out if row.id in rendered]
        _insert(driver, list(_told(told, rendered)), at)
        keys = [row.id for row, _ in told], [row.customer_id for row, _ in told]
        driver.execute(_DELETE_OUTBOX, list(keys))
    return len(fanned_out)


def _claim_outbox(driver: psycopg.Connection[Any], limit: int, at: datetime) -> list[_Row]:
    with driver.cursor(binary=True) as cursor:
        rows = cursor.execute(_CLAIM_OUTBOX, {"limit": limit, "at": at}).fetchall()
    return sorted(map(_Row._make, rows))


def _fan_out(
    driver: psycopg.Connection[Any], rows: Sequence[_Row], limit: int
) -> list[tuple[_Row, list[_Endpoint | None]]]:
    """Return the first of `rows` with who wants to be told: one, and what `limit` has room for.

    Each delivery in order is also a lock, of which PostgreSQL has some thousands for everybody.
    """
    by_platform: dict[UUID, list[_Endpoint]] = defaultdict(list)
    with driver.cursor(binary=True) as cursor:
        for found in cursor.execute(_ENDPOINTS, [list({row.platform_id for row in rows})]):
            endpoint = _Endpoint._make(found)
            by_platform[endpoint.platform_id].append(endpoint)
    fanned_out: list[tuple[_Row, list[_Endpoint | None]]] = []
    size = 0
    for row in rows:
        endpoints = by_platform[row.platform_id]
        wanting: list[_Endpoint | None] = [one for one in endpoints if _is_for(one, row)]
        if not endpoints:
            wanting = [None]  # It is kept, and not sent.
        size += len(wanting)
        if fanned_out and size > limit:
            break
        fanned_out.append((row, wanting))
    return fanned_out


def _told(
    fanned_out: Iterable[tuple[_Row, Sequence[_Endpoint | None]]], bodies: Mapping[UUID, str]
) -> Iterator[_Told]:
    for row, endpoints in fanned_out:
        for endpoint in endpoints:
            yield _Told(row, bodies[row.id], endpoint)


def _is_for(endpoint: _Endpoint, row: _Row) -> bool:
    match row.type:
        case WebhookType.TEST:
            return endpoint.id == row.subject_id
        case WebhookType.WEBHOOK_ENDPOINT_DISABLED if endpoint.id == row.subject_id:
            return False  # It is the others that have to hear of it.
        case _:
            return wants(endpoint.event_types, row.type)


def _put_off(driver: psycopg.Connection[Any], rows: Sequence[_Row], at: datetime) -> None:
    keys = [row.id for row in rows], [row.customer_id for row in rows]
    driver.execute(_PUT_OFF, [at + _RENDER_AGAIN_AFTER, *keys])


def _render(driver: psycopg.Connection[Any], rows: Sequence[_Row]) -> dict[UUID, str]:
    folded = _fold(driver, rows)
    bodies: dict[UUID, str] = {}
    for row in rows:
        try:
            bodies[row.id] = _body(row, folded)
        except (ValueError, LookupError):
            _log.exception("webhook cannot be rendered", webhook=str(row.id), type=row.type)
    return bodies


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
        data = roll_up.wire(folded[row.subject_id, row.sequence])
    elif row.type == WebhookType.INTERNAL_ACCOUNT_BALANCE_UPDATED:
        data = accounts.wire(data, key=row.subject_id, customer_id=row.customer_id)
    return envelope(row.id, row.type, row.recorded_at, data, sequence=row.sequence).decode()


def _insert(driver: psycopg.Connection[Any], told: Sequence[_Told], at: datetime) -> None:
    first = _first_of_queues(told)
    taken = _occupied(driver, first) if first else set()
    with driver.cursor() as cursor, cursor.copy(_COPY_DELIVERIES) as copy:
        copy.set_types(list(_DELIVERY_TYPES.values()))
        for row, body, endpoint in told:
            state, due, endpoint_id = "NO_ENDPOINT", None, None
            if endpoint is not None:
                state, due, endpoint_id = "PENDING", at, endpoint.id
                queue = (endpoint.id, row.subject_id)
                if endpoint.is_fifo and (queue in taken or first[queue] != row.id):
                    due = place(row.sequence, row.id)
            copy.write_row((new_id(), *row[1:6], body, state, due, at, row.id, endpoint_id))


def _first_of_queues(told: Sequence[_Told]) -> dict[Queue, UUID]:
    """Return which webhook comes first, where order is promised.

    By `place`, not by id: an id is from a clock, which may have been put back in between.
    """
    first: dict[Queue, tuple[datetime, UUID]] = {}
    for row, _, endpoint in told:
        if endpoint is not None and endpoint.is_fifo:
            queue, its = (endpoint.id, row.subject_id), (place(row.sequence, row.id), row.id)
            first[queue] = min(first.get(queue, its), its)
    return {queue: webhook for queue, (_, webhook) in first.items()}


# --- order -------------------------------------------------------------------------------------


def lock_queues(driver: psycopg.Connection[Any], queues: Collection[Queue]) -> None:
    """Hold `queues` until the end of the database transaction; all ask in the same order."""
    driver.execute(LOCK_QUEUES, _columns(queues))


def release_next(driver: psycopg.Connection[Any], queues: Collection[Queue], at: datetime) -> None:
    """Make the first webhook of each of `queues` due when none is; they are locked."""
    endpoints, subjects = _columns(queues)
    arguments = {"endpoints": endpoints, "subjects": subjects, "at": at, "later": LATER}
    driver.execute(RELEASE_NEXT, arguments)


def place(sequence: int | None, webhook: UUID) -> datetime:
    """Return the time that puts a waiting webhook in its place, so that one index has them all.

    By its sequence; where the resource has none, by the millisecond in its UUIDv7.
    """
    return LATER + timedelta(microseconds=webhook.int >> 80 if sequence is None else sequence)


def _occupied(driver: psycopg.Connection[Any], queues: Collection[Queue]) -> set[Queue]:
    """Lock `queues` and return those that something waits in."""
    lock_queues(driver, queues)
    with driver.cursor(binary=True) as cursor:
        found = cursor.execute(_OCCUPIED, _columns(queues)).fetchall()
    return {(endpoint_id, subject_id) for endpoint_id, subject_id in found}


def _columns(queues: Collection[Queue]) -> list[list[UUID]]:
    return [[endpoint for endpoint, _ in queues], [subject for _, subject in queues]]


# --- claims and attempts -----------------------------------------------------------------------


def claim_due(
    connection: Connection, *, room: Room, at: datetime, lease: timedelta
) -> list[Delivery]:
    """Claim what is due, as far as there is `room`, for as long as `lease`.

    Shape: oldest first; the webhooks of one resource in the order in which they happened, unless
    an earlier one waits for its retry.
    """
    leased_until = at + lease
    busy_endpoints, busy_subjects = _columns(room.busy)
    known = list(room.shares.keys() | room.turns.keys())
    arguments = {
        "at": at,
        "leased_until": leased_until,
        "total": room.total,
        "share": room.share,
        "others": room.others,
        "failing": room.failing,
        "endpoints": known,
        "shares": [room.shares.get(one) for one in known],
        "turns": [room.turns.get(one, 0) for one in known],
        "busy_endpoints": busy_endpoints,
        "busy_subjects": busy_subjects,
    }
    driver = driver_of(connection)
    driver.execute(_CLAIM_SETTINGS)
    with driver.cursor(binary=True) as cursor:
        rows = sorted(cursor.execute(_CLAIM_DELIVERIES, arguments).fetchall(), key=_by_age)
    return [
        Delivery(
            id=key,
            webhook=webhook,
            customer_id=customer_id,
            platform_id=platform_id,
            type=kind,
            subject_id=subject_id,
            body=body.encode(),
            attempts=attempts,
            leased_until=leased_until,
            endpoint_id=endpoint_id,
            endpoint_version=endpoint_version,
            url=url,
            is_fifo=is_fifo,
            failing_since=failing_since,
        )
        for (
            _due,
            webhook,
            key,
            customer_id,
            platform_id,
            kind,
            subject_id,
            body,
            attempts,
            endpoint_id,
            endpoint_version,
            url,
            is_fifo,
            failing_since,
        ) in rows
    ]


def _by_age(row: Sequence[Any]) -> tuple[datetime, UUID]:
    return row[0], row[1]


def record_attempt(
    connection: Connection, delivery: Delivery, attempt: Attempt, *, retry_at: datetime | None
) -> None:
    """Keep `attempt`, and what becomes of its delivery: delivered, tried again, or given up.

    An attempt that ends after its lease is kept too. If it delivered, that stands; if it failed,
    it changes nothing: somebody else has the delivery now.
    """
    driver = driver_of(connection)
    arguments = {
        "id": delivery.id,
        "customer_id": delivery.customer_id,
        "endpoint_id": delivery.endpoint_id,
        "leased_until": delivery.leased_until,
        "delivered": attempt.delivered,
        "is_retried": delivery.is_retried,
        "retry_at": retry_at,
        "at": attempt.at,
        "ended_at": attempt.ended_at,
        "duration_ms": attempt.duration_ms,
        "status": attempt.status,
        "error": attempt.error,
        "response_head": attempt.response_head,
    }
    if not delivery.is_fifo or retry_at is not None:
        driver.execute(_RECORD_ATTEMPT, arguments)
        return
    with driver.pipeline():  # One round trip; each statement still sees what came before it.
        lock_queues(driver, [delivery.queue])
        driver.execute(_RECORD_ATTEMPT, arguments)
        release_next(driver, [delivery.queue], attempt.ended_at)


def next_attempt_at(failed: int, *, at: datetime, scale: float, jitter: float) -> datetime | None:
    """Return when to try again after `failed` attempts, the last at `at`; None: no more.

    Units: `scale` and `jitter` are factors of the pause; 1 and 1 follow the schedule exactly.
    """
    if failed > len(PAUSES):
        return None
    return at + PAUSES[failed - 1] * scale * jitter


def not_before(attempt: Attempt, *, scale: float) -> datetime | None:
    """Return when the receiver asked to be tried again, an hour from now at most; None: it did not.

    Only 429 and 503 ask: anywhere else `Retry-After` means something else or nothing.
    """
    if attempt.status not in _SAYS_WHEN or attempt.retry_after is None:
        return None
    pause = _pause(attempt.retry_after.strip(), attempt.ended_at)
    if pause is None or pause <= timedelta(0):
        return None
    return attempt.ended_at + min(pause, _LONGEST_RETRY_AFTER) * scale


def _pause(said: str, now: datetime) -> timedelta | None:
    """Return what `Retry-After` says, in seconds or as a date; None: nothing that we understand."""
    if said.isascii() and said.isdigit():
        return min(timedelta(seconds=int(said[:9])), _LONGEST_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC) - now


# --- endpoints that are given up ---------------------------------------------------------------


def disable(
    connection: Connection,
    endpoint_id: UUID,
    *,
    reason: GivenUpReason,
    at: datetime,
    failing_since_before: datetime | None = None,
) -> bool:
    """Stop sending to an endpoint and tell its platform's others; returns whether it was enabled.

    With `failing_since_before`, only if it has done nothing but fail since then. What it should be
    told waits until it is enabled again.
    """
    driver = driver_of(connection)
    arguments = {"id": endpoint_id, "reason": reason, "at": at, "before": failing_since_before}
    row = driver.execute(_DISABLE, arguments).fetchone()
    if row is None:
        return False
    platform_id, url, description = row
    told = WebhookEndpointDisabled(
        id=endpoint_id, url=url, description=description, disabled_reason=reason
    )
    driver.execute(
        _TELL_DISABLED,
        {
            "id": new_id(),
            "customer_id": NIL,
            "platform_id": platform_id,
            "type": WebhookType.WEBHOOK_ENDPOINT_DISABLED.value,
            "subject_id": endpoint_id,
            "data": Json(told.wire()),
            "recorded_at": at,
        },
    )
    return True


# The key that signs: the last one whose time has come, else the platform's first.
SIGNING_KEY: Final = """
    coalesce(
        (SELECT k.private_key FROM webhook_signing_keys k
         WHERE k.platform_id = p.id AND k.signs_from <= %(at)s
         ORDER BY k.signs_from DESC, k.id DESC LIMIT 1),
        p.signing_key)
"""

_KEYS: Final = f"""
    SELECT {SIGNING_KEY}, coalesce(e.secret, p.webhook_secret),
        CASE WHEN e.former_secret_until > %(at)s THEN e.former_secret END
    FROM webhook_endpoints e JOIN platforms p ON p.id = e.platform_id WHERE e.id = %(endpoint)s
"""

_ENDPOINTS: Final = """
    SELECT id, platform_id, event_types, mode = 'FIFO' FROM webhook_endpoints
    WHERE platform_id = ANY (%s::uuid[]) AND deleted_at IS NULL ORDER BY platform_id, id
"""

# What could not be rendered comes last, or enough of it would hold up everything. One half ends
# before the other begins, so nothing is locked that is not taken.
_CLAIM_OUTBOX: Final = """
    SELECT * FROM (
        SELECT id, customer_id, platform_id, type, subject_id, sequence, data, recorded_at
        FROM outbox WHERE retry_at IS NULL
        ORDER BY id, customer_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) fresh UNION ALL SELECT * FROM (
        SELECT id, customer_id, platform_id, type, subject_id, sequence, data, recorded_at
        FROM outbox WHERE retry_at <= %(at)s
        ORDER BY retry_at, id, customer_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) put_off LIMIT %(limit)s
"""

LOCK_QUEUES: Final = """
    SELECT pg_advisory_xact_lock(place) FROM (
        SELECT DISTINCT hashtextextended(endpoint::text || subject::text, 0) AS place
        FROM unnest(%s::uuid[], %s::uuid[]) AS queue (endpoint, subject)
        ORDER BY place
    ) places
"""

_OCCUPIED: Final = """
    SELECT endpoint, subject FROM unnest(%s::uuid[], %s::uuid[]) AS queue (endpoint, subject)
    WHERE EXISTS (
        SELECT FROM webhook_deliveries w
        WHERE w.endpoint_id = endpoint AND w.subject_id = subject AND w.next_attempt_at IS NOT NULL
    )
"""

RELEASE_NEXT: Final = """
    UPDATE webhook_deliveries w SET next_attempt_at = %(at)s
    FROM unnest(%(endpoints)s::uuid[], %(subjects)s::uuid[]) AS queue (endpoint, subject)
    CROSS JOIN LATERAL (
        SELECT n.id, n.customer_id, n.next_attempt_at FROM webhook_deliveries n
        WHERE n.endpoint_id = endpoint AND n.subject_id = subject AND n.next_attempt_at IS NOT NULL
        ORDER BY n.next_attempt_at, n.webhook_id LIMIT 1
    ) first
    WHERE w.id = first.id AND w.customer_id = first.customer_id
        AND first.next_attempt_at >= %(later)s
"""

_DISABLE: Final = """
    UPDATE webhook_endpoints SET state = 'DISABLED', disabled_reason = %(reason)s,
        updated_at = %(at)s
    WHERE id = %(id)s AND state = 'ENABLED' AND deleted_at IS NULL
        AND (%(before)s::timestamptz IS NULL OR failing_since <= %(before)s)
    RETURNING platform_id, url, description
"""

_TELL_DISABLED: Final = """
    INSERT INTO outbox (id, customer_id, platform_id, type, subject_id, data, recorded_at)
    VALUES (%(id)s, %(customer_id)s, %(platform_id)s, %(type)s, %(subject_id)s, %(data)s,
        %(recorded_at)s)
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
    "body": "text",
    "state": "text",
    "next_attempt_at": "timestamptz",
    "created_at": "timestamptz",
    "webhook_id": "uuid",
    "endpoint_id": "uuid",
}

_COPY_DELIVERIES: Final = (
    f"COPY webhook_deliveries ({', '.join(_DELIVERY_TYPES)}) FROM STDIN (FORMAT BINARY)"
)

# A claim that a crash of PostgreSQL forgets is made again, so nobody waits for the disk. And the
# planner, which cannot know how few rows a share is, would compile for 200 ms what runs in one.
_CLAIM_SETTINGS: Final = (
    "SELECT set_config('synchronous_commit', 'off', true), set_config('jit', 'off', true)"
)

# One look into the index for each endpoint, so that a long backlog of one never hides another.
# Where there is not room for all, each has its turn, and nobody a second before others a first.
_CLAIM_DELIVERIES: Final = """
    WITH due AS MATERIALIZED (
        SELECT oldest.*, e.updated_at, e.url, e.mode = 'FIFO' AS is_fifo, e.failing_since,
            r.share IS NOT NULL AS is_named, e.failing_since IS NOT NULL AS is_failing,
            coalesce(r.turn, 0) AS turn, row_number() OVER (
                PARTITION BY e.id ORDER BY oldest.next_attempt_at, oldest.webhook_id) AS place
        FROM webhook_endpoints e
        LEFT JOIN unnest(%(endpoints)s::uuid[], %(shares)s::int4[], %(turns)s::int8[])
            AS r (id, share, turn) ON r.id = e.id
        CROSS JOIN LATERAL (
            SELECT w.id, w.customer_id, w.next_attempt_at, w.webhook_id
            FROM webhook_deliveries w
            WHERE w.endpoint_id = e.id AND w.next_attempt_at <= %(at)s
                AND NOT EXISTS (
                    SELECT FROM unnest(%(busy_endpoints)s::uuid[], %(busy_subjects)s::uuid[])
                        AS busy (endpoint, subject)
                    WHERE endpoint = e.id AND subject = w.subject_id)
            ORDER BY w.next_attempt_at, w.webhook_id
            LIMIT coalesce(r.share, %(share)s)
            FOR UPDATE SKIP LOCKED
        ) oldest
        WHERE e.state = 'ENABLED' AND e.deleted_at IS NULL
    ), ranked AS (
        SELECT *, row_number() OVER (
            PARTITION BY is_named, is_failing
            ORDER BY place, turn, next_attempt_at, webhook_id) AS rank
        FROM due
    ), taken AS MATERIALIZED (
        SELECT * FROM ranked
        WHERE is_named OR rank <= CASE WHEN is_failing THEN %(failing)s ELSE %(others)s END
        ORDER BY place, turn, next_attempt_at, webhook_id LIMIT %(total)s
    )
    UPDATE webhook_deliveries w SET next_attempt_at = %(leased_until)s
    FROM taken WHERE w.id = taken.id AND w.customer_id = taken.customer_id
    RETURNING taken.next_attempt_at, w.webhook_id, w.id, w.customer_id, w.platform_id, w.type,
        w.subject_id, w.body, w.attempts - w.attempts_before, w.endpoint_id, taken.updated_at,
        taken.url, taken.is_fifo, taken.failing_since
"""

# Nobody waits for the disk here either: what a crash of PostgreSQL forgets of the last half second
# is sent once more, with the ids that receivers know.
# The lease is still the one that the attempt was made under, or somebody else has the delivery.
# A test that fails says nothing of an endpoint's health: often it is sent before anybody listens.
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
    ), health AS (
        UPDATE webhook_endpoints
        SET failing_since = CASE WHEN %(delivered)s THEN NULL ELSE %(at)s::timestamptz END
        WHERE id = %(endpoint_id)s AND (failing_since IS NULL) <> %(delivered)s
            AND (%(delivered)s OR %(is_retried)s)
    )
    INSERT INTO webhook_attempts (delivery_id, number, customer_id, attempted_at, duration_ms,
        status, error, response_head)
    SELECT id, attempts, customer_id, %(at)s, %(duration_ms)s, %(status)s::int2, %(error)s::text,
        %(response_head)s::text
    FROM counted WHERE set_config('synchronous_commit', 'off', true) = 'off'
"""
