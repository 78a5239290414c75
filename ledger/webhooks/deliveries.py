"""Webhook deliveries as platforms see them: list, read, retry and replay."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage import paging
from cardledger.ledger.storage.engines import driver_async
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.webhooks.dispatch import DISPATCH_LOCK
from cardledger.ledger.webhooks.ordering import LATER, LOCK_QUEUES, RELEASE_NEXT, queue_position
from cardledger.ledger.webhooks.retry_policy import Attempt
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.webhooks.endpoints import (
    WebhookAttemptResource,
    WebhookDeliveryResource,
)
from cardledger.schema.wire.webhooks.envelope import WebhookType

REPLAY_BATCH_SIZE: Final = 500
"""Deliveries that one database transaction makes due again."""

_SCAN_BATCH_SIZE: Final = 5000
# The lease of an attempt under way ends within this time; it must not be sent a second time.
_LEASE_LIMIT: Final = timedelta(minutes=1)
# A delivery's id has its time from the clock of the process that dispatched it.
_CLOCK_DIFFERENCE: Final = timedelta(days=1)

_DELIVERIES: Final = tables.webhook_deliveries.c
_ATTEMPTS: Final = tables.webhook_attempts.c

_DELIVERY: Final = select(
    _DELIVERIES.id,
    _DELIVERIES.customer_id,
    _DELIVERIES.webhook_id,
    _DELIVERIES.endpoint_id,
    _DELIVERIES.type,
    _DELIVERIES.subject_id,
    _DELIVERIES.sequence,
    _DELIVERIES.state,
    _DELIVERIES.attempts,
    _DELIVERIES.next_attempt_at,
    _DELIVERIES.last_status,
    _DELIVERIES.created_at,
    _DELIVERIES.delivered_at,
)
"""Every column but the body, which is large."""

# The resource of a type whose first word is not the name of the resource.
_RESOURCES: Final[Mapping[str, str]] = {
    "TEST": "WebhookEndpoint",
    "INCOMING_PAYMENT": "Transaction",
    "OUTGOING_PAYMENT": "Transaction",
    "INVITATION": "UmaInvitation",
}


class NoEndpointError(Exception):
    """The endpoint of the delivery was deleted, or the platform never had one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilters:
    """Conditions on deliveries; None matches every delivery. Times are inclusive."""

    endpoint_id: Id | None = None
    type: str | None = None
    subject_ids: Sequence[Id] = ()
    state: str | None = None
    since: datetime | None = None
    until: datetime | None = None


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


async def page(
    connection: AsyncConnection, *, platform_id: Id, filters: DeliveryFilters, wanted: paging.Wanted
) -> paging.Page[WebhookDeliveryResource]:
    """Return one page of the platform's deliveries."""
    matching = [_DELIVERIES.platform_id == platform_id]
    if filters.endpoint_id is not None:
        matching.append(_DELIVERIES.endpoint_id == filters.endpoint_id)
    if filters.type is not None:
        matching.append(_DELIVERIES.type == filters.type)
    matching += [_DELIVERIES.subject_id == subject for subject in filters.subject_ids]
    if filters.state is not None:
        matching.append(_DELIVERIES.state == filters.state)
    if filters.since is not None:
        matching.append(_DELIVERIES.created_at >= filters.since)
    if filters.until is not None:
        matching.append(_DELIVERIES.created_at <= filters.until)
    return await paging.read(
        connection,
        _DELIVERY,
        table=tables.webhook_deliveries,
        matching=matching,
        wanted=wanted,
        item=_render,
    )


async def get(
    connection: AsyncConnection, *, platform_id: Id, delivery_id: Id
) -> WebhookDeliveryResource | None:
    """Return the platform's delivery with its payload and attempts, or None."""
    rows = await connection.execute(
        _DELIVERY.add_columns(_DELIVERIES.body).where(
            _DELIVERIES.id == delivery_id, _DELIVERIES.platform_id == platform_id
        )
    )
    row = rows.one_or_none()
    if row is None:
        return None
    attempts = await connection.execute(
        select(
            _ATTEMPTS.number,
            _ATTEMPTS.attempted_at,
            _ATTEMPTS.duration_ms,
            _ATTEMPTS.status,
            _ATTEMPTS.error,
            _ATTEMPTS.response_head,
        )
        .where(_ATTEMPTS.delivery_id == delivery_id)
        .order_by(_ATTEMPTS.number)
    )
    attempt_list = [WebhookAttemptResource.model_validate(row._asdict()) for row in attempts]
    payload = json.loads(row.body)
    return _render(row).model_copy(update={"attempt_list": attempt_list, "payload": payload})


# --- retry and replay --------------------------------------------------------------------------


# A delivery without an endpoint goes to the platform's default endpoint.
_COLUMNS: Final = """
    w.id, w.customer_id, w.webhook_id, e.id, w.subject_id, w.sequence, w.state, e.mode = 'FIFO'
"""

_WITH_ENDPOINT: Final = """
    LEFT JOIN webhook_endpoints e ON e.platform_id = w.platform_id AND e.deleted_at IS NULL
        AND CASE WHEN w.endpoint_id IS NULL THEN e.is_default ELSE e.id = w.endpoint_id END
"""

_BY_ID: Final = f"""
    SELECT {_COLUMNS} FROM webhook_deliveries w {_WITH_ENDPOINT}
    WHERE w.id = %(id)s AND w.platform_id = %(platform)s
"""


async def retry(
    connection: AsyncConnection, *, platform_id: Id, delivery_id: Id, at: datetime
) -> bool:
    """Make a delivery due again, whatever its state; return whether the platform has it.

    The webhook id stays the same, so that receivers recognise a duplicate.
    Raises: NoEndpointError.
    """
    driver = await _lock_endpoints(connection)
    arguments = {"platform": platform_id, "id": delivery_id}
    row = await (await driver.execute(_BY_ID, arguments)).fetchone()
    if row is None:
        return False
    if row[3] is None:
        raise NoEndpointError
    await _make_due(driver, [row], at)
    return True


_SCANNED: Final = """
    SELECT * FROM webhook_deliveries
    WHERE platform_id = %(platform)s AND id > %(after)s AND id < %(before)s
    ORDER BY id LIMIT %(scan_limit)s
"""

_MATCHING: Final = f"""
    SELECT {_COLUMNS} FROM ({_SCANNED}) w {_WITH_ENDPOINT}
    WHERE e.id IS NOT NULL AND w.type <> %(test)s
        AND w.created_at >= %(since)s AND w.created_at <= %(until)s
        AND (%(endpoint)s::uuid IS NULL OR e.id = %(endpoint)s)
        AND (w.state IN ('FAILED', 'NO_ENDPOINT')
            OR w.state = 'DELIVERED' AND NOT %(only_failed)s
            OR w.next_attempt_at > %(leases_end)s AND w.next_attempt_at < %(later)s)
    ORDER BY w.id LIMIT %(limit)s
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

    Deliveries that wait for a retry are due at once. Tests and deliveries without an endpoint are
    skipped.
    """
    until = window.until or at
    first = _first_id(window.since - _CLOCK_DIFFERENCE)
    arguments = {
        "platform": platform_id,
        "after": max(after, first) if after else first,
        "before": _first_id(until + _CLOCK_DIFFERENCE),
        "scan_limit": _SCAN_BATCH_SIZE,
        "limit": REPLAY_BATCH_SIZE,
        "endpoint": window.endpoint_id,
        "since": window.since,
        "until": until,
        "only_failed": window.only_failed,
        "leases_end": at + _LEASE_LIMIT,
        "later": LATER,
        "test": WebhookType.TEST.value,
    }
    driver = await _lock_endpoints(connection)
    matching = await (await driver.execute(_MATCHING, arguments)).fetchall()
    progress = await (await driver.execute(_SCAN_PROGRESS, arguments)).fetchone()
    assert progress is not None
    scanned, last = progress
    count = await _make_due(driver, matching, at) if matching else 0
    if len(matching) == REPLAY_BATCH_SIZE:
        return Replayed(count=count, after=matching[-1][0])
    return Replayed(count=count, after=last if scanned == _SCAN_BATCH_SIZE else None)


async def _lock_endpoints(
    connection: AsyncConnection,
) -> psycopg.AsyncConnection[Any]:
    """Return the driver, and keep endpoints from being deleted until the transaction ends.

    Otherwise a delivery could be made due for an endpoint that no longer exists.
    """
    driver = await driver_async(connection)
    await driver.execute("SELECT pg_advisory_xact_lock_shared(%s)", [DISPATCH_LOCK])
    return driver


# A delivery that waits for its retry is due at once and keeps its attempts; an attempt under way is
# left alone.
_MAKE_DUE: Final = """
    UPDATE webhook_deliveries w SET
        state = 'PENDING',
        next_attempt_at = replayed.due,
        endpoint_id = replayed.endpoint,
        attempts_before = CASE WHEN w.state = 'PENDING' THEN w.attempts_before ELSE w.attempts END
    FROM unnest(%(ids)s::uuid[], %(customers)s::uuid[], %(endpoints)s::uuid[],
        %(due)s::timestamptz[]) AS replayed (id, customer_id, endpoint, due)
    WHERE w.id = replayed.id AND w.customer_id = replayed.customer_id
        AND (w.state <> 'PENDING'
            OR w.next_attempt_at > %(leases_end)s AND w.next_attempt_at < %(later)s)
"""


async def _make_due(
    driver: psycopg.AsyncConnection[Any], rows: Sequence[tuple[Any, ...]], at: datetime
) -> int:
    queues = list({(row[3], row[4]) for row in rows if row[7]})
    columns = [[endpoint for endpoint, _ in queues], [subject for _, subject in queues]]
    if queues:
        await driver.execute(LOCK_QUEUES, columns)
    due = [queue_position(row[5], row[2]) if row[7] else at for row in rows]
    changed = await driver.execute(
        _MAKE_DUE,
        {
            "ids": [row[0] for row in rows],
            "customers": [row[1] for row in rows],
            "endpoints": [row[3] for row in rows],
            "due": due,
            "leases_end": at + _LEASE_LIMIT,
            "later": LATER,
        },
    )
    if queues:
        endpoints, subjects = columns
        release = {"endpoints": endpoints, "subjects": subjects, "at": at, "later": LATER}
        await driver.execute(RELEASE_NEXT, release)
    return changed.rowcount


def _first_id(moment: datetime) -> Id:
    """Return the lowest UUIDv7 of `moment`: it begins with the milliseconds."""
    milliseconds = max(int(moment.timestamp() * 1000), 0)
    return Id(milliseconds.to_bytes(6) + bytes(10))


# --- test webhooks -----------------------------------------------------------------------------


async def record_test(  # noqa: PLR0913 - keyword arguments only
    connection: AsyncConnection,
    *,
    platform_id: Id,
    endpoint_id: Id,
    webhook_id: Id,
    body: bytes,
    attempt: Attempt,
) -> Id:
    """Store a test webhook that was sent during a request; return its delivery."""
    key = new_id()
    await connection.execute(
        tables.webhook_deliveries.insert().values(
            id=key,
            customer_id=Id(bytes(16)),
            platform_id=platform_id,
            type=WebhookType.TEST,
            subject_id=endpoint_id,
            body=body.decode(),
            state="DELIVERED" if attempt.delivered else "FAILED",
            attempts=1,
            last_status=attempt.status,
            created_at=attempt.at,
            delivered_at=attempt.ended_at if attempt.delivered else None,
            webhook_id=webhook_id,
            endpoint_id=endpoint_id,
        )
    )
    await connection.execute(
        tables.webhook_attempts.insert().values(
            delivery_id=key,
            number=1,
            customer_id=Id(bytes(16)),
            attempted_at=attempt.at,
            duration_ms=attempt.duration_ms,
            status=attempt.status,
            error=attempt.error,
            response_head=attempt.response_head,
        )
    )
    return key


# --- rendering ---------------------------------------------------------------------------------


def subject_of(kind: str, subject_id: Id) -> str:
    """Return the public id of the resource that a webhook is about: `Card:0193...`."""
    group = kind.partition(".")[0]
    resource = _RESOURCES.get(group) or "".join(word.capitalize() for word in group.split("_"))
    return public_id(resource, subject_id)


def _render(row: Row[*tuple[Any, ...]]) -> WebhookDeliveryResource:
    due = row.next_attempt_at
    return WebhookDeliveryResource(
        id=row.id,
        webhook_id=row.webhook_id,
        endpoint_id=row.endpoint_id,
        type=row.type,
        subject_id=subject_of(row.type, row.subject_id),
        sequence=row.sequence,
        state=row.state,
        attempts=row.attempts,
        next_attempt_at=due if due is not None and due < LATER else None,
        last_status=row.last_status,
        created_at=row.created_at,
        delivered_at=row.delivered_at,
    )
