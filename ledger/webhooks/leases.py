"""Leases of webhook deliveries: claim deliveries for an attempt, and record the results.

State lives in PostgreSQL only. A lease moves `next_attempt_at` to its own end, so that a sender
that crashes loses nothing. That time is also the token of the lease: a sender that records after
its lease has expired cannot overwrite the result of the next sender. `lease_ends_at` has the same
time, so that a request to send again can tell an attempt under way from a retry that waits. Nothing
here opens a socket.

Results are recorded and the next deliveries claimed in one database transaction and one round
trip. It waits for no lock: rows that another transaction has locked are skipped. The commit need
not wait for the disk: a delivery that a crash of PostgreSQL forgets is claimed and sent again
under the same webhook id.
Source: docs/decisions/0021-one-coordinator-for-attempts.md
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from sqlalchemy import Connection

from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.engines import driver as driver_of
from cardledger.ledger.webhooks.claims import Capacity, PlatformCapacity, claim
from cardledger.ledger.webhooks.ordering import (
    QUEUE_LOCK_KEY,
    Queue,
    release_after,
)
from cardledger.ledger.webhooks.retry_policy import Attempt
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.webhooks.envelope import APPROVAL, WebhookType


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A delivery leased for one attempt until `leased_until`."""

    id: Id
    webhook: Id
    customer_id: Id
    platform_id: Id
    type: str
    subject_id: Id
    body: bytes
    attempts: int  # Made before this lease, since the delivery or its last replay.
    leased_until: datetime
    endpoint_id: Id
    endpoint_version: datetime  # When the endpoint was last changed.
    url: str
    is_fifo: bool
    failing_since: datetime | None

    @property
    def webhook_id(self) -> str:
        """The public id, the same in every attempt."""
        return public_id("Webhook", self.webhook)

    @property
    def queue(self) -> Queue:
        """The queue in which an ordered endpoint receives it."""
        return self.endpoint_id, self.subject_id

    @property
    def is_retried(self) -> bool:
        """Whether a failed attempt is retried; tests and requests for approval are sent once."""
        return self.type != WebhookType.TEST and not self.is_approval

    @property
    def is_approval(self) -> bool:
        """Whether its response decides on a payment."""
        return self.type == APPROVAL


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """A finished attempt, and when it is retried; None: it is not."""

    delivery: Delivery
    attempt: Attempt
    retry_at: datetime | None

    @property
    def ends_turn(self) -> bool:
        """Whether the next delivery of its queue becomes due."""
        return self.delivery.is_fifo and self.retry_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The deliveries that were claimed, and those whose results are still to be recorded."""

    claimed: list[Delivery]
    passed_over: frozenset[Id]  # Locked by another transaction: record their results later.


# A transaction that adds to a queue, sends a part of it again or deletes its endpoint may hold
# locks for long, and any session may hold a row. Waiting for it would delay all other results, so a
# delivery is returned as passed over when its queue, its row or the one that follows is locked.
# A failure counts only while `next_attempt_at` is still the end of its lease; otherwise another
# sender has the delivery.
# A failed test does not count as a failing endpoint: tests are often sent before a receiver runs.
# A success must clear `failing_since`, or the next failure disables the endpoint: when the row of
# the endpoint is locked, the success is passed over. A failure that could not set `failing_since`
# is repeated by the next one.
_RECORD: Final = f"""
    WITH ended AS MATERIALIZED (
        SELECT *, CASE WHEN ends_turn THEN pg_try_advisory_xact_lock({QUEUE_LOCK_KEY}) ELSE true END
            AS is_free
        FROM unnest(%(ids)s, %(customers)s, %(endpoints)s, %(subjects)s, %(leases)s, %(retried)s,
            %(ends_turn)s, %(retries)s, %(delivered)s, %(began)s, %(ended)s, %(durations)s,
            %(statuses)s, %(errors)s, %(heads)s)
            AS a (id, customer_id, endpoint, subject, leased_until, is_retried, ends_turn, retry_at,
                is_delivered, began_at, ended_at, duration_ms, status, error, response_head)
    ), following AS MATERIALIZED (
        SELECT a.id AS ended_id, next.id, next.customer_id
        FROM ended a CROSS JOIN LATERAL (
            SELECT n.id, n.customer_id FROM webhook_deliveries n
            WHERE n.endpoint_id = a.endpoint AND n.subject_id = a.subject
                AND n.next_attempt_at IS NOT NULL AND n.id <> a.id
            ORDER BY n.next_attempt_at, n.webhook_id LIMIT 1
        ) next
        WHERE a.ends_turn AND a.is_free
    ), releasable AS MATERIALIZED (
        SELECT following.ended_id
        FROM following JOIN webhook_deliveries w
            ON w.id = following.id AND w.customer_id = following.customer_id
        FOR UPDATE OF w SKIP LOCKED
    ), responses AS MATERIALIZED (
        SELECT DISTINCT ON (endpoint) endpoint, is_delivered, began_at
        FROM ended WHERE is_delivered OR is_retried
        ORDER BY endpoint, is_delivered DESC, began_at
    ), changed AS MATERIALIZED (
        SELECT e.id, is_delivered, began_at
        FROM responses JOIN webhook_endpoints e ON e.id = endpoint
        WHERE (e.failing_since IS NULL) <> is_delivered FOR UPDATE OF e SKIP LOCKED
    ), health AS (
        UPDATE webhook_endpoints e
        SET failing_since = CASE WHEN is_delivered THEN NULL ELSE began_at END
        FROM changed WHERE e.id = changed.id
    ), held AS MATERIALIZED (
        SELECT w.id, w.customer_id
        FROM ended a JOIN webhook_deliveries w ON w.id = a.id AND w.customer_id = a.customer_id
        WHERE a.is_free
            AND a.id NOT IN (
                SELECT ended_id FROM following
                WHERE ended_id NOT IN (SELECT ended_id FROM releasable))
            AND NOT (a.is_delivered AND EXISTS (
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
    ), recorded AS (
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


def record_and_claim(
    connection: Connection,
    results: Sequence[AttemptResult],
    *,
    capacity: Capacity | PlatformCapacity | None,
    at: datetime,
    lease: timedelta,
) -> BatchResult:
    """Record `results` and claim what is due, within `capacity`, for `lease`; all or nothing.

    Requested tests and approvals are claimed with a capacity for them, and only then.

    `connection` is in AUTOCOMMIT mode: a pipeline is then one database transaction. With a
    `capacity` of None nothing is claimed. The next delivery of a queue is due at once when a
    result ends the turn of the one before.

    A result that comes after its lease is recorded too: a success stands, a failure changes
    nothing, because another sender has the delivery by then.

    Shape: the oldest claimed delivery first; the webhooks of one resource in order, unless an
    earlier one waits for its retry.
    """
    driver = driver_of(connection)
    passed_over, claimed = driver.cursor(binary=True), driver.cursor(binary=True)
    # One round trip; each statement still sees the effects of the statements before it.
    with driver.pipeline():
        if results:
            passed_over.execute(_RECORD, _record_arguments(results))
        if ended := [result.delivery for result in results if result.ends_turn]:
            keys = [(delivery.queue, delivery.id, delivery.customer_id) for delivery in ended]
            release_after(driver, keys, at)
        if capacity is not None:
            claim(claimed, capacity, at, at + lease)
    return BatchResult(
        claimed=_deliveries(claimed, at + lease) if capacity is not None else [],
        passed_over=frozenset(key for (key,) in passed_over) if results else frozenset(),
    )


def _record_arguments(results: Sequence[AttemptResult]) -> dict[str, pg_arrays.Array]:
    deliveries = [result.delivery for result in results]
    attempts = [result.attempt for result in results]
    return {
        "ids": pg_arrays.uuids([delivery.id for delivery in deliveries]),
        "customers": pg_arrays.uuids([delivery.customer_id for delivery in deliveries]),
        "endpoints": pg_arrays.uuids([delivery.endpoint_id for delivery in deliveries]),
        "subjects": pg_arrays.uuids([delivery.subject_id for delivery in deliveries]),
        "leases": pg_arrays.times([delivery.leased_until for delivery in deliveries]),
        "retried": pg_arrays.booleans([delivery.is_retried for delivery in deliveries]),
        "ends_turn": pg_arrays.booleans([result.ends_turn for result in results]),
        "retries": pg_arrays.times([result.retry_at for result in results]),
        "delivered": pg_arrays.booleans([attempt.delivered for attempt in attempts]),
        "began": pg_arrays.times([attempt.at for attempt in attempts]),
        "ended": pg_arrays.times([attempt.ended_at for attempt in attempts]),
        "durations": pg_arrays.integers([attempt.duration_ms for attempt in attempts]),
        "statuses": pg_arrays.integers([attempt.status for attempt in attempts]),
        "errors": pg_arrays.texts([attempt.error for attempt in attempts]),
        "heads": pg_arrays.texts([attempt.response_head for attempt in attempts]),
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
        ) in sorted(cursor, key=_age)
    ]


def _age(row: Sequence[Any]) -> tuple[datetime, Id]:
    return row[0], row[1]
