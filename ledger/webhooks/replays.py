"""Retries and replays: deliveries are due again, and missed webhooks become deliveries.

A webhook that an endpoint missed while it was disabled is stored without an endpoint (`dispatch`);
a replay copies it for each endpoint that subscribes and has no delivery of it. A replay that names
a disabled endpoint makes what it has missed wait in order, until the endpoint is enabled.
Source: docs/decisions/0018-webhook-ordering.md
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import psycopg
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.engines import driver_async
from cardledger.ledger.storage.ids import first_id_at
from cardledger.ledger.webhooks.deliveries import CLOCK_DIFFERENCE, delivery_id
from cardledger.ledger.webhooks.ordering import (
    LATER,
    LOCK_QUEUES,
    RELEASE_NEXT,
    TAKE_BACK,
    Queue,
    columns,
    queue_position,
)
from cardledger.schema.ids import Id
from cardledger.schema.wire.webhooks.envelope import WebhookType

REPLAY_BATCH_SIZE: Final = 500
"""Deliveries that one database transaction makes due again."""

_SIZE_LIMIT: Final = 8 * 1024 * 1024
"""Octets of bodies that it copies, and that one statement copies."""

RETRY_LIMIT: Final = 100
"""Attempts of a delivery after which it is not retried on request, nor replayed once delivered."""

REPLAY_LIMIT: Final = 1_000
"""Attempts after which it is not replayed: a replay every ten minutes has as many in a week."""

_SCAN_BATCH_SIZE: Final = 5000
# The time of a webhook is that of its dispatcher before it waited for its turn, two seconds at
# most, by another clock than the platform's times. A missed webhook is copied once, so more of them
# than the window has do no harm.
_MISSED_MARGIN: Final = timedelta(minutes=1)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


class NoEndpointError(Exception):
    """The delivery has no endpoint: it was deleted, or no enabled one wanted the webhook."""


class RetriedTooOftenError(Exception):
    """The delivery has had `RETRY_LIMIT` attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The deliveries to replay: of one endpoint or all, created in a period, failed ones or all."""

    endpoint_id: Id | None
    since: datetime
    until: datetime | None
    only_failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """How many deliveries are due again, and the id to continue after; None: the replay is done."""

    count: int
    after: Id | None


class _Replayable(NamedTuple):
    """A delivery and the endpoint to which it goes."""

    id: Id
    customer_id: Id
    webhook_id: Id
    endpoint_id: Id | None
    subject_id: Id
    sequence: int | None
    is_fifo: bool
    is_missed: bool  # To be copied: it has no endpoint of its own.
    size: int = 0  # Octets that are copied.


_COLUMNS: Final = """
    w.id, w.customer_id, w.webhook_id, e.id, w.subject_id, w.sequence, e.mode = 'FIFO'
"""

# A webhook without an endpoint stands for all that have missed it: `replay` copies it for each.
_BY_ID: Final = f"""
    SELECT {_COLUMNS}, false, w.attempts FROM webhook_deliveries w
    LEFT JOIN webhook_endpoints e ON e.platform_id = w.platform_id AND e.deleted_at IS NULL
        AND e.id = w.endpoint_id
    WHERE w.id = %(id)s AND w.platform_id = %(platform)s
"""


async def retry(
    connection: AsyncConnection, *, platform_id: Id, delivery_id: Id, at: datetime
) -> bool:
    """Make a delivery due again, whatever its state; return whether the platform has it.

    The webhook id stays the same, so that receivers recognise a duplicate.
    Raises: NoEndpointError; RetriedTooOftenError.
    """
    driver = await driver_async(connection)
    arguments = {"platform": platform_id, "id": delivery_id}
    row = await (await driver.execute(_BY_ID, arguments)).fetchone()
    if row is None:
        return False
    *found, attempts = row
    delivery = _Replayable(*found)
    if delivery.endpoint_id is None:
        raise NoEndpointError
    if attempts >= RETRY_LIMIT:
        raise RetriedTooOftenError
    await _make_due(driver, [delivery], at)
    return True


# Neither due nor under way, nor behind an earlier delivery of its queue. What is under way must not
# be sent a second time.
_WAITS_FOR_RETRY: Final = """
    w.next_attempt_at > %(at)s AND w.next_attempt_at < %(later)s
        AND w.next_attempt_at IS DISTINCT FROM w.lease_ends_at
"""

_SCANNED: Final = """
    SELECT * FROM webhook_deliveries
    WHERE platform_id = %(platform)s AND id > %(after)s AND id < %(before)s
    ORDER BY id LIMIT %(scan_limit)s
"""

# What an endpoint has missed is a webhook that it subscribes to and that is stored without an
# endpoint. One that is disabled receives it only when the replay names it; one that did not exist
# at the time, when the replay names it or it is the default endpoint.
_MATCHING: Final = f"""
    SELECT {_COLUMNS}, w.endpoint_id IS NULL,
        CASE WHEN w.endpoint_id IS NULL THEN octet_length(w.body) ELSE 0 END
    FROM ({_SCANNED}) w
    JOIN webhook_endpoints e ON e.platform_id = w.platform_id AND e.deleted_at IS NULL
        AND (e.id = w.endpoint_id
            OR w.endpoint_id IS NULL AND (e.state = 'ENABLED' OR e.id = %(endpoint)s)
                AND (cardinality(e.event_types) = 0 OR w.type = ANY (e.event_types)
                    OR split_part(w.type, '.', 1) || '.*' = ANY (e.event_types))
                AND NOT (w.type = %(disabled)s AND w.subject_id = e.id)
                AND (e.is_default OR e.id = %(endpoint)s
                    OR e.created_at <= w.created_at + %(margin)s))
    WHERE w.type <> %(test)s
        AND w.created_at >= CASE WHEN w.endpoint_id IS NULL THEN %(missed_since)s ELSE %(since)s END
        AND w.created_at <= CASE WHEN w.endpoint_id IS NULL THEN %(missed_until)s ELSE %(until)s END
        AND (%(endpoint)s::uuid IS NULL OR e.id = %(endpoint)s)
        AND (w.state IN ('FAILED', 'NO_ENDPOINT')
            OR w.state = 'DELIVERED' AND NOT %(only_failed)s
            OR {_WAITS_FOR_RETRY})
        AND w.attempts < CASE w.state WHEN 'DELIVERED' THEN %(retries)s ELSE %(replays)s END
    ORDER BY w.id, e.id LIMIT %(limit)s
"""

_SCAN_PROGRESS: Final = f"SELECT count(*), max(id::text)::uuid FROM ({_SCANNED}) w"


async def replay(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    window: Window,
    after: Id | None,
    at: datetime,
) -> Replayed:
    """Make the next deliveries of `window` due again, at most `REPLAY_BATCH_SIZE` of them.

    Fewer where copies are large; but all of a webhook that was missed.
    Deliveries that wait for a retry are due at once. What enabled endpoints and the named one have
    missed becomes deliveries. Tests are skipped, and what has had many attempts.
    """
    arguments = _arguments(platform_id, window, after, at)
    driver = await driver_async(connection)
    rows = await (await driver.execute(_MATCHING, arguments)).fetchall()
    progress = await (await driver.execute(_SCAN_PROGRESS, arguments)).fetchone()
    assert progress is not None
    scanned, last = progress
    matching = [_Replayable._make(row) for row in rows]
    batch = _first_of(matching)
    if len(batch) < len(matching) or len(matching) == REPLAY_BATCH_SIZE:
        next_after: Id | None = batch[-1].id
    else:
        next_after = last if scanned == _SCAN_BATCH_SIZE else None
    due = [one for one in batch if not one.is_missed]
    due += await _copy(driver, [one for one in batch if one.is_missed])
    return Replayed(count=await _make_due(driver, due, at) if due else 0, after=next_after)


def _first_of(matching: Sequence[_Replayable]) -> list[_Replayable]:
    """Return the first of `matching` that are replayed together: all of an id, or none of it.

    The endpoints of the last id may not all be there, so it is left for the next batch.
    """
    by_id = [list(of_id) for _, of_id in groupby(matching, key=attrgetter("id"))]
    if len(matching) == REPLAY_BATCH_SIZE and len(by_id) > 1:
        del by_id[-1]
    batch: list[_Replayable] = []
    size = 0
    for of_id in by_id:
        size += sum(one.size for one in of_id)
        if batch and size > _SIZE_LIMIT:
            break
        batch += of_id
    return batch


def _arguments(
    platform_id: Id, window: Window, after: Id | None, at: datetime
) -> dict[str, object]:
    until = window.until or at
    first = first_id_at(_shifted(window.since, -CLOCK_DIFFERENCE))
    return {
        "platform": platform_id,
        "after": max(after, first) if after else first,
        "before": first_id_at(_shifted(until, CLOCK_DIFFERENCE)),
        "scan_limit": _SCAN_BATCH_SIZE,
        "limit": REPLAY_BATCH_SIZE,
        "endpoint": window.endpoint_id,
        "since": window.since,
        "until": until,
        "margin": _MISSED_MARGIN,
        "missed_since": _shifted(window.since, -_MISSED_MARGIN),
        "missed_until": _shifted(until, _MISSED_MARGIN),
        "only_failed": window.only_failed,
        "retries": RETRY_LIMIT,
        "replays": REPLAY_LIMIT,
        "at": at,
        "later": LATER,
        "test": WebhookType.TEST.value,
        "disabled": WebhookType.WEBHOOK_ENDPOINT_DISABLED.value,
    }


def _shifted(moment: datetime, by: timedelta) -> datetime:
    """Return `moment` later `by` a time, or the first or the last of all times."""
    try:
        return moment + by
    except OverflowError:
        return _FIRST if by < timedelta(0) else _LAST


_COPY: Final = """
    INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, sequence, body,
        state, created_at, webhook_id, endpoint_id)
    SELECT copy.id, w.customer_id, w.platform_id, w.type, w.subject_id, w.sequence, w.body,
        'NO_ENDPOINT', w.created_at, w.webhook_id, copy.endpoint
    FROM unnest(%(ids)s::uuid[], %(sources)s::uuid[], %(customers)s::uuid[], %(endpoints)s::uuid[])
        AS copy (id, source, customer_id, endpoint)
    JOIN webhook_deliveries w ON w.id = copy.source AND w.customer_id = copy.customer_id
    ON CONFLICT (id, customer_id) DO NOTHING RETURNING id
"""


async def _copy(
    driver: psycopg.AsyncConnection[Any], missed: Sequence[_Replayable]
) -> list[_Replayable]:
    """Store `missed` for their endpoints; return those that had no delivery before.

    Of one webhook for very many endpoints by several statements: each has a limit of time.
    """
    copied: list[_Replayable] = []
    rest = list(missed)
    while rest:
        count = max(bisect_right(list(accumulate(one.size for one in rest)), _SIZE_LIMIT), 1)
        part, rest = rest[:count], rest[count:]
        copies = {delivery_id(one.id, one.webhook_id, one.endpoint_id): one for one in part}
        inserted = await driver.execute(
            _COPY,
            {
                "ids": list(copies),
                "sources": [one.id for one in copies.values()],
                "customers": [one.customer_id for one in copies.values()],
                "endpoints": [one.endpoint_id for one in copies.values()],
            },
        )
        copied += [copies[key]._replace(id=key) for (key,) in await inserted.fetchall()]
    return copied


# A delivery that waits for its retry is due at once and keeps its attempts; an attempt under way is
# left alone.
_MAKE_DUE: Final = f"""
    UPDATE webhook_deliveries w SET
        state = 'PENDING',
        next_attempt_at = replayed.due,
        endpoint_id = replayed.endpoint,
        attempts_before = CASE WHEN w.state = 'PENDING' THEN w.attempts_before ELSE w.attempts END
    FROM unnest(%(ids)s::uuid[], %(customers)s::uuid[], %(endpoints)s::uuid[],
        %(due)s::timestamptz[]) AS replayed (id, customer_id, endpoint, due)
    WHERE w.id = replayed.id AND w.customer_id = replayed.customer_id
        AND (w.state <> 'PENDING' OR {_WAITS_FOR_RETRY})
"""


# Until the commit the endpoint is not marked as discarded, so that what becomes due now and goes to
# an endpoint that is deleted meanwhile ends as well. It does not wait for the deletion.
_LOCK_ENDPOINTS: Final = """
    SELECT id FROM webhook_endpoints
    WHERE id = ANY (%s::uuid[]) AND deleted_at IS NULL ORDER BY id FOR KEY SHARE
"""

# Once the queues are locked, which may take a while: the lock above does not keep the state.
_ENABLED: Final = """
    SELECT id FROM webhook_endpoints WHERE id = ANY (%s::uuid[]) AND state = 'ENABLED'
"""


async def _make_due(
    driver: psycopg.AsyncConnection[Any], replayed: Sequence[_Replayable], at: datetime
) -> int:
    locked = await driver.execute(
        _LOCK_ENDPOINTS, [list({one.endpoint_id for one in replayed if one.endpoint_id})]
    )
    existing = {key for (key,) in await locked.fetchall()}
    deliveries = [one for one in replayed if one.endpoint_id in existing]
    queues = {
        (one.endpoint_id, one.subject_id)
        for one in deliveries
        if one.is_fifo and one.endpoint_id is not None
    }
    if queues:
        await driver.execute(LOCK_QUEUES, columns(queues))
    changed = await driver.execute(
        _MAKE_DUE,
        {
            "ids": [one.id for one in deliveries],
            "customers": [one.customer_id for one in deliveries],
            "endpoints": [one.endpoint_id for one in deliveries],
            "due": [
                queue_position(one.sequence, one.webhook_id) if one.is_fifo else at
                for one in deliveries
            ],
            "at": at,
            "later": LATER,
        },
    )
    if queues:
        found = await driver.execute(_ENABLED, [columns(queues)[0]])
        enabled = {key for (key,) in await found.fetchall()}
        of_disabled = {queue for queue in queues if queue[0] not in enabled}
        await driver.execute(TAKE_BACK, _of_queues(of_disabled, at))
        await driver.execute(RELEASE_NEXT, _of_queues(queues, at))
    return changed.rowcount


def _of_queues(queues: Collection[Queue], at: datetime) -> dict[str, object]:
    endpoints, subjects = columns(queues)
    return {"endpoints": endpoints, "subjects": subjects, "at": at, "later": LATER}
