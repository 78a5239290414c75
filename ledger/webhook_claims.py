"""Deliveries on their way: claimed for an attempt, and what becomes of them after it.

State lives in PostgreSQL only. A claim is a lease: it moves `next_attempt_at` to its own end, so
that a sender that dies loses nothing, and that same time is the claim's token: whoever records
later than it lasted cannot undo what the next sender did. Nothing here opens a socket.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection

from ledger.database import driver as driver_of
from ledger.webhook_attempts import Attempt
from ledger.webhook_queues import Queue, columns, lock_queues, release_next
from schema.wire.common import public_id
from schema.wire.webhooks import WebhookType


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
    def queue(self) -> Queue:
        """What it is kept in order with, as far as order is kept."""
        return self.endpoint_id, self.subject_id

    @property
    def is_retried(self) -> bool:
        """Whether a failure is followed by another attempt: a test says once how it went."""
        return self.type != WebhookType.TEST


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


def claim_due(
    connection: Connection, *, room: Room, at: datetime, lease: timedelta
) -> list[Delivery]:
    """Claim what is due, as far as there is `room`, for as long as `lease`.

    Shape: oldest first; the webhooks of one resource in the order in which they happened, unless
    an earlier one waits for its retry.
    """
    leased_until = at + lease
    busy_endpoints, busy_subjects = columns(room.busy)
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
