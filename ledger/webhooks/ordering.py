"""Ordered delivery (FIFO): the webhooks of one resource reach an endpoint in sequence.

A queue is an endpoint and a resource. Only the first delivery of a queue is due; the others have a
time of `LATER` or after. The database transaction that ends a delivery makes the next one due. An
advisory lock on the queue keeps the transactions apart that end and that add a delivery.
Source: docs/decisions/0018-webhook-ordering.md
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg

from cardledger.schema.ids import Id

LATER: Final = datetime(9999, 1, 1, tzinfo=UTC)
"""`next_attempt_at` from here on is a position in a queue, not a time."""

Queue = tuple[Id, Id]
"""An endpoint and a resource."""


QUEUE_LOCK_KEY: Final = "hashtextextended(endpoint::text || subject::text, 0)"
"""The key of the advisory lock of a queue."""

LOCK_QUEUES: Final = f"""
    SELECT pg_advisory_xact_lock(lock_key) FROM (
        SELECT DISTINCT {QUEUE_LOCK_KEY} AS lock_key
        FROM unnest(%s::uuid[], %s::uuid[]) AS queue (endpoint, subject)
        ORDER BY lock_key
    ) lock_keys
"""


def lock_queues(driver: psycopg.Connection[Any], queues: Collection[Queue]) -> None:
    """Lock `queues` until the end of the database transaction, always in the same order."""
    driver.execute(LOCK_QUEUES, columns(queues))


_RELEASE: Final = """
    UPDATE webhook_deliveries w SET next_attempt_at = %(at)s
    FROM {queues} CROSS JOIN LATERAL (
        SELECT n.id, n.customer_id, n.next_attempt_at FROM webhook_deliveries n
        WHERE n.endpoint_id = endpoint AND n.subject_id = subject AND n.next_attempt_at IS NOT NULL
        ORDER BY n.next_attempt_at, n.webhook_id LIMIT 1 FOR UPDATE{wait}
    ) first
    WHERE w.id = first.id AND w.customer_id = first.customer_id
        AND first.next_attempt_at >= %(later)s
"""
RELEASE_NEXT: Final = _RELEASE.format(
    queues="unnest(%(endpoints)s::uuid[], %(subjects)s::uuid[]) AS queue (endpoint, subject)",
    wait="",
)
"""Makes the first delivery of each of some queues due; the caller has locked the queues."""

_RELEASE_AFTER: Final = _RELEASE.format(
    queues="""(
        SELECT DISTINCT endpoint, subject
        FROM unnest(%(endpoints)s::uuid[], %(subjects)s::uuid[], %(ids)s::uuid[],
            %(customers)s::uuid[]) AS ended (endpoint, subject, id, customer_id)
        WHERE EXISTS (
            SELECT FROM webhook_deliveries w
            WHERE w.id = ended.id AND w.customer_id = ended.customer_id
                AND w.next_attempt_at IS NULL AND w.xmin = pg_current_xact_id()::xid)
    ) AS queue""",
    wait=" NOWAIT",
)


def release_after(
    driver: psycopg.Connection[Any], ended: Collection[tuple[Queue, Id, Id]], at: datetime
) -> None:
    """Make the delivery due that follows each of `ended`: its queue, its id and its cardholder.

    Only of those that this transaction has ended: the caller has locked their queues, and the
    deliveries that follow. What another one has ended, or holds, changes nothing.
    """
    endpoints, subjects = columns([queue for queue, _, _ in ended])
    arguments = {
        "endpoints": endpoints,
        "subjects": subjects,
        "ids": [key for _, key, _ in ended],
        "customers": [customer for _, _, customer in ended],
        "at": at,
        "later": LATER,
    }
    driver.execute(_RELEASE_AFTER, arguments)


def queue_position(sequence: int | None, webhook: Id) -> datetime:
    """Return the `next_attempt_at` that stands for the position of a waiting webhook in its queue.

    Positions follow the sequence; without a sequence, the millisecond in the UUIDv7. One index
    serves both positions and times.
    """
    position = int.from_bytes(webhook[:6]) if sequence is None else sequence
    return LATER + timedelta(microseconds=position)


_POSITION: Final = """
    %(later)s + interval '1 microsecond' * coalesce(
        w.sequence, ('x' || left(replace(w.webhook_id::text, '-', ''), 12))::bit(48)::bigint)
"""

IS_REQUESTED_TEST: Final = "w.type = 'TEST' AND w.id = w.webhook_id AND w.attempts = 0"
"""Whether `w` is a test that a request waits for (`endpoint_tests`), and not sent yet.

It has a lane of its own and is sent whether its endpoint is enabled or not.
"""

TAKE_BACK: Final = f"""
    UPDATE webhook_deliveries w SET next_attempt_at = {_POSITION}
    FROM unnest(%(endpoints)s::uuid[], %(subjects)s::uuid[]) AS queue (endpoint, subject)
    WHERE w.endpoint_id = endpoint AND w.subject_id = subject AND w.next_attempt_at < %(later)s
        AND NOT ({IS_REQUESTED_TEST})
"""
"""Gives due deliveries the `queue_position` that they had, so that earlier ones can precede them.

For endpoints to which nothing is sent. The result of an attempt still under way is recorded all the
same: a success stands, and a failure changes nothing, as after the end of a lease.
"""


def columns(queues: Collection[Queue]) -> list[list[Id]]:
    """Return the endpoints of `queues`, and the resources."""
    return [[endpoint for endpoint, _ in queues], [subject for _, subject in queues]]
