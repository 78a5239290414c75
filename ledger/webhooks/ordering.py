"""The order in which an endpoint is told of one resource, where order is promised (FIFO).

Only the first of what is to be told has a time at which it is due; the others have `LATER`, and
whatever ends one gives the next its time in the same database transaction. A lock on endpoint and
resource keeps those apart who end one and who add one.
Source: docs/decisions/0018-webhook-ordering.md
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg

from cardledger.schema.ids import Id

LATER: Final = datetime(9999, 1, 1, tzinfo=UTC)
"""From here on a time says only who is next: what waits for an earlier one of its resource."""

Queue = tuple[Id, Id]
"""An endpoint, and a resource of which it is told."""


def lock_queues(driver: psycopg.Connection[Any], queues: Collection[Queue]) -> None:
    """Hold `queues` until the end of the database transaction; all ask in the same order."""
    driver.execute(LOCK_QUEUES, columns(queues))


def release_next(
    driver: psycopg.Connection[Any], queues: Collection[Queue], at: datetime, *, waits: bool = True
) -> None:
    """Make the first webhook of each of `queues` due when none is; they are locked.

    Raises: psycopg.errors.LockNotAvailable, unless it `waits`, when somebody else holds the row.
    """
    endpoints, subjects = columns(queues)
    arguments = {"endpoints": endpoints, "subjects": subjects, "at": at, "later": LATER}
    driver.execute(RELEASE_NEXT if waits else _RELEASE_NEXT_NOW, arguments)


def place(sequence: int | None, webhook: Id) -> datetime:
    """Return the time that puts a waiting webhook in its place, so that one index has them all.

    By its sequence; where the resource has none, by the millisecond in its UUIDv7.
    """
    milliseconds = int.from_bytes(webhook[:6]) if sequence is None else sequence
    return LATER + timedelta(microseconds=milliseconds)


def columns(queues: Collection[Queue]) -> list[list[Id]]:
    """Return the endpoints of `queues`, and the resources."""
    return [[endpoint for endpoint, _ in queues], [subject for _, subject in queues]]


PLACE: Final = "hashtextextended(endpoint::text || subject::text, 0)"
"""What a queue is locked by."""

LOCK_QUEUES: Final = f"""
    SELECT pg_advisory_xact_lock(place) FROM (
        SELECT DISTINCT {PLACE} AS place
        FROM unnest(%s::uuid[], %s::uuid[]) AS queue (endpoint, subject)
        ORDER BY place
    ) places
"""

_RELEASE_NEXT: Final = """
    UPDATE webhook_deliveries w SET next_attempt_at = %(at)s
    FROM unnest(%(endpoints)s::uuid[], %(subjects)s::uuid[]) AS queue (endpoint, subject)
    CROSS JOIN LATERAL (
        SELECT n.id, n.customer_id, n.next_attempt_at FROM webhook_deliveries n
        WHERE n.endpoint_id = endpoint AND n.subject_id = subject AND n.next_attempt_at IS NOT NULL
        ORDER BY n.next_attempt_at, n.webhook_id LIMIT 1 FOR UPDATE{}
    ) first
    WHERE w.id = first.id AND w.customer_id = first.customer_id
        AND first.next_attempt_at >= %(later)s
"""
RELEASE_NEXT: Final = _RELEASE_NEXT.format("")
_RELEASE_NEXT_NOW: Final = _RELEASE_NEXT.format(" NOWAIT")
