"""Deliveries on their way: claimed for an attempt, and what becomes of them after it.

State lives in PostgreSQL only. A claim is a lease: it moves `next_attempt_at` to its own end, so
that a sender that dies loses nothing, and that same time is the claim's token: whoever records
later than it lasted cannot undo what the next sender did. Nothing here opens a socket.

Any number of attempts is recorded, and the next deliveries are claimed, in one database
transaction and one round trip. It waits for nobody: what somebody else has locked is passed over.
Nor need it wait for the disk: what a crash of PostgreSQL makes it forget is claimed and sent once
more, with the ids that receivers know.
Source: docs/decisions/0021-one-coordinator-for-attempts.md
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb
from sqlalchemy import Connection

from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.engines import driver as driver_of
from cardledger.ledger.webhooks.ordering import PLACE, Queue, columns, release_next
from cardledger.ledger.webhooks.retry_policy import Attempt
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.webhooks.envelope import WebhookType


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A webhook claimed for one attempt, until `leased_until` and no longer."""

    id: Id
    webhook: Id
    customer_id: Id
    platform_id: Id
    type: str
    subject_id: Id
    body: bytes
    attempts: int  # Made before this claim, since it was last asked for.
    leased_until: datetime
    endpoint_id: Id
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
class AttemptResult:
    """An attempt that has ended, and when there is to be another; None: there is none."""

    delivery: Delivery
    attempt: Attempt
    retry_at: datetime | None

    @property
    def ends_turn(self) -> bool:
        """Whether it lets the next one of its queue pass."""
        return self.delivery.is_fifo and self.retry_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What came of recording and claiming: what is to be sent, and which attempts have to wait."""

    claimed: list[Delivery]
    passed_over: frozenset[Id]  # Deliveries whose attempts are to be recorded later.


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
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
    shares: Mapping[Id, int]
    others: int
    failing: int
    busy: Collection[Queue]
    turns: Mapping[Id, int] = field(default_factory=dict)


def record_and_claim(
    connection: Connection,
    ended: Sequence[AttemptResult],
    *,
    room: Capacity | None,
    at: datetime,
    lease: timedelta,
) -> BatchResult:
    """Record the attempts that have `ended`, and claim what is due; all of it or nothing.

    `connection` is in AUTOCOMMIT mode: a pipeline is a database transaction then. As much is
    claimed as there is `room` for, for as long as `lease`; what an attempt lets pass is due at
    once. Without room nothing is claimed.

    An attempt that ends after its lease is kept too. If it delivered, that stands; if it failed,
    it changes nothing: somebody else has the delivery now.

    Raises: psycopg.errors.LockNotAvailable when somebody else holds what an attempt lets pass.
    Shape: claimed are the oldest first; the webhooks of one resource in the order in which they
    happened, unless an earlier one waits for its retry.
    """
    driver = driver_of(connection)
    passed_over, claimed = driver.cursor(binary=True), driver.cursor(binary=True)
    # One round trip; each statement still sees what came before it.
    with driver.pipeline():
        if ended:
            passed_over.execute(_RECORD, _recorded(ended))
        if queues := {one.delivery.queue for one in ended if one.ends_turn}:
            release_next(driver, queues, at, waits=False)
        if room is not None:
            claimed.execute(_CLAIM, _wanted(room, at, at + lease))
    return BatchResult(
        claimed=_deliveries(claimed, at + lease) if room is not None else [],
        passed_over=frozenset(key for (key,) in passed_over) if ended else frozenset(),
    )


def _recorded(ended: Sequence[AttemptResult]) -> dict[str, pg_arrays.Array]:
    deliveries, attempts = [one.delivery for one in ended], [one.attempt for one in ended]
    return {
        "ids": pg_arrays.uuids([one.id for one in deliveries]),
        "customers": pg_arrays.uuids([one.customer_id for one in deliveries]),
        "endpoints": pg_arrays.uuids([one.endpoint_id for one in deliveries]),
        "subjects": pg_arrays.uuids([one.subject_id for one in deliveries]),
        "leases": pg_arrays.times([one.leased_until for one in deliveries]),
        "retried": pg_arrays.booleans([one.is_retried for one in deliveries]),
        "ends_turn": pg_arrays.booleans([one.ends_turn for one in ended]),
        "retries": pg_arrays.times([one.retry_at for one in ended]),
        "delivered": pg_arrays.booleans([one.delivered for one in attempts]),
        "began": pg_arrays.times([one.at for one in attempts]),
        "ended": pg_arrays.times([one.ended_at for one in attempts]),
        "durations": pg_arrays.integers([one.duration_ms for one in attempts]),
        "statuses": pg_arrays.integers([one.status for one in attempts]),
        "errors": pg_arrays.texts([one.error for one in attempts]),
        "heads": pg_arrays.texts([one.response_head for one in attempts]),
    }


def _wanted(room: Capacity, at: datetime, leased_until: datetime) -> dict[str, Any]:
    busy_endpoints, busy_subjects = columns(room.busy)
    return {
        "at": at,
        "leased_until": leased_until,
        "total": room.total,
        "share": room.share,
        "others": room.others,
        "failing": room.failing,
        "shares": Jsonb({str(one): share for one, share in room.shares.items()}),
        "turns": Jsonb({str(one): turn for one, turn in room.turns.items()}),
        "busy_endpoints": pg_arrays.uuids(busy_endpoints),
        "busy_subjects": pg_arrays.uuids(busy_subjects),
    }


def _deliveries(cursor: psycopg.Cursor[Any], leased_until: datetime) -> list[Delivery]:
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
        ) in sorted(cursor, key=_by_age)
    ]


def _by_age(row: Sequence[Any]) -> tuple[datetime, Id]:
    return row[0], row[1]


# One look into the index for each endpoint, so that a long backlog of one never hides another.
# Where there is not room for all, each has its turn, and nobody a second before others a first.
# What is known of endpoints is looked up by key: a join would compare each with each.
_CLAIM: Final = """
    WITH due AS MATERIALIZED (
        SELECT oldest.*, e.updated_at, e.url, e.mode = 'FIFO' AS is_fifo, e.failing_since,
            r.share IS NOT NULL AS is_named, e.failing_since IS NOT NULL AS is_failing,
            coalesce(r.turn, 0) AS turn, row_number() OVER (
                PARTITION BY e.id ORDER BY oldest.next_attempt_at, oldest.webhook_id) AS place
        FROM webhook_endpoints e
        CROSS JOIN LATERAL (
            SELECT (%(shares)s::jsonb ->> e.id::text)::int4 AS share,
                (%(turns)s::jsonb ->> e.id::text)::int8 AS turn
        ) r
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

# Those who add to a queue, or take its endpoint away, hold locks for as long as they need; one
# attempt that waited for them would make all others wait with it. So it is told back.
# The lease is still the one that the attempt was made under, or somebody else has the delivery.
# A test that fails says nothing of an endpoint's health: often it is sent before anybody listens.
# The end of five days of failures must not be missed, or the next failure disables the endpoint: a
# success waits for whoever holds its row. That they begin is said again by the next failure.
_RECORD: Final = f"""
    WITH ended AS MATERIALIZED (
        SELECT *, CASE WHEN ends_turn THEN pg_try_advisory_xact_lock({PLACE}) ELSE true END
            AS is_free
        FROM unnest(%(ids)s, %(customers)s, %(endpoints)s, %(subjects)s, %(leases)s, %(retried)s,
            %(ends_turn)s, %(retries)s, %(delivered)s, %(began)s, %(ended)s, %(durations)s,
            %(statuses)s, %(errors)s, %(heads)s)
            AS a (id, customer_id, endpoint, subject, leased_until, is_retried, ends_turn, retry_at,
                is_delivered, began_at, ended_at, duration_ms, status, error, response_head)
    ), heard AS MATERIALIZED (
        SELECT DISTINCT ON (endpoint) endpoint, is_delivered, began_at
        FROM ended WHERE is_delivered OR is_retried
        ORDER BY endpoint, is_delivered DESC, began_at
    ), changed AS MATERIALIZED (
        SELECT e.id, is_delivered, began_at
        FROM heard JOIN webhook_endpoints e ON e.id = endpoint
        WHERE (e.failing_since IS NULL) <> is_delivered FOR UPDATE OF e SKIP LOCKED
    ), health AS (
        UPDATE webhook_endpoints e
        SET failing_since = CASE WHEN is_delivered THEN NULL ELSE began_at END
        FROM changed WHERE e.id = changed.id
    ), held AS MATERIALIZED (
        SELECT w.id, w.customer_id
        FROM ended a JOIN webhook_deliveries w ON w.id = a.id AND w.customer_id = a.customer_id
        WHERE a.is_free AND NOT (a.is_delivered AND EXISTS (
            SELECT FROM webhook_endpoints e
            WHERE e.id = a.endpoint AND e.failing_since IS NOT NULL
                AND NOT EXISTS (SELECT FROM changed WHERE changed.id = e.id)))
        FOR UPDATE OF w SKIP LOCKED
    ), counted AS (
        UPDATE webhook_deliveries w SET
            attempts = w.attempts + 1,
            state = CASE
                WHEN is_delivered THEN 'DELIVERED'
                WHEN next_attempt_at = leased_until AND retry_at IS NULL THEN 'FAILED'
                ELSE state END,
            next_attempt_at = CASE
                WHEN is_delivered THEN NULL
                WHEN next_attempt_at = leased_until THEN retry_at
                ELSE next_attempt_at END,
            delivered_at = CASE
                WHEN is_delivered THEN coalesce(delivered_at, ended_at)
                ELSE delivered_at END,
            last_status = CASE
                WHEN is_delivered OR next_attempt_at = leased_until THEN a.status
                ELSE last_status END
        FROM held JOIN ended a ON a.id = held.id
        WHERE w.id = held.id AND w.customer_id = held.customer_id
        RETURNING w.id, w.attempts
    ), told AS (
        INSERT INTO webhook_attempts (delivery_id, number, customer_id, attempted_at, duration_ms,
            status, error, response_head)
        SELECT counted.id, counted.attempts, customer_id, began_at, duration_ms, status, error,
            response_head
        FROM counted JOIN ended ON ended.id = counted.id
    )
    SELECT id FROM ended WHERE NOT EXISTS (SELECT FROM held WHERE held.id = ended.id)
        AND EXISTS (
            SELECT FROM webhook_deliveries w
            WHERE w.id = ended.id AND w.customer_id = ended.customer_id)
"""
