"""Deliveries as platforms see them: what was told, what came of it, and telling it again."""

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
from cardledger.ledger.webhooks.ordering import LATER, LOCK_QUEUES, RELEASE_NEXT, place
from cardledger.ledger.webhooks.retry_policy import Attempt
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.webhooks.endpoints import (
    WebhookAttemptResource,
    WebhookDeliveryResource,
)
from cardledger.schema.wire.webhooks.envelope import WebhookType

REPLAYED_AT_ONCE: Final = 500
"""How many deliveries one database transaction makes due again."""

_LOOKED_AT_AT_ONCE: Final = 5000
# An attempt that is under way has its lease's end for its time, and must not be made twice.
_SOON: Final = timedelta(minutes=1)
# A delivery's id is as old as the delivery by the clock of whoever dispatched it.
_CLOCKS_DIFFER: Final = timedelta(days=1)

_DELIVERIES: Final = tables.webhook_deliveries.c
_ATTEMPTS: Final = tables.webhook_attempts.c

_SHOWN: Final = select(
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
"""Everything but the body, which is most of it."""

# What a type's first word is about, where that is not the word itself.
_RESOURCES: Final[Mapping[str, str]] = {
    "TEST": "WebhookEndpoint",
    "INCOMING_PAYMENT": "Transaction",
    "OUTGOING_PAYMENT": "Transaction",
    "INVITATION": "UmaInvitation",
}


class NoEndpointError(Exception):
    """A delivery has nowhere to go: its endpoint was deleted, or there never was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What deliveries have to match; None matches all, and times are included."""

    endpoint_id: Id | None = None
    type: str | None = None
    subject_ids: Sequence[Id] = ()
    state: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What to tell again: of one endpoint or of all, made in a span of time, failed or any."""

    endpoint_id: Id | None
    since: datetime
    until: datetime | None
    only_failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """How many are due again, and where to go on; None: that was the end."""

    count: int
    after: Id | None


async def page(
    connection: AsyncConnection, *, platform_id: Id, filters: Filters, wanted: paging.Wanted
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
        _SHOWN,
        table=tables.webhook_deliveries,
        matching=matching,
        wanted=wanted,
        item=_render,
    )


async def get(
    connection: AsyncConnection, *, platform_id: Id, delivery_id: Id
) -> WebhookDeliveryResource | None:
    """Return the platform's delivery with its payload and attempts; None: it has no such one."""
    rows = await connection.execute(
        _SHOWN.add_columns(_DELIVERIES.body).where(
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
    told = [WebhookAttemptResource.model_validate(one._asdict()) for one in attempts]
    return _render(row).model_copy(update={"attempt_list": told, "payload": json.loads(row.body)})


# --- again -------------------------------------------------------------------------------------


async def retry(
    connection: AsyncConnection, *, platform_id: Id, delivery_id: Id, at: datetime
) -> bool:
    """Make one delivery due again, whatever came of it; returns whether the platform has it.

    With the same webhook id, so that a receiver that has it knows it again.
    Raises: NoEndpointError.
    """
    driver = await _while_no_endpoint_goes(connection)
    arguments = {"platform": platform_id, "id": delivery_id}
    row = await (await driver.execute(_ONE, arguments)).fetchone()
    if row is None:
        return False
    if row[3] is None:
        raise NoEndpointError
    await _make_due(driver, [row], at)
    return True


async def replay(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    window: Window,
    after: Id | None,
    at: datetime,
) -> Replayed:
    """Make the next deliveries of `window` due again, a bounded number of them.

    Those that wait for their retry are due at once. Tests are never repeated, and what has no
    endpoint any more is passed over.
    """
    until = window.until or at
    first = _first_id(window.since - _CLOCKS_DIFFER)
    arguments = {
        "platform": platform_id,
        "after": max(after, first) if after else first,
        "before": _first_id(until + _CLOCKS_DIFFER),
        "looked_at": _LOOKED_AT_AT_ONCE,
        "limit": REPLAYED_AT_ONCE,
        "endpoint": window.endpoint_id,
        "since": window.since,
        "until": until,
        "only_failed": window.only_failed,
        "soon": at + _SOON,
        "later": LATER,
        "test": WebhookType.TEST.value,
    }
    driver = await _while_no_endpoint_goes(connection)
    found = await (await driver.execute(_MATCHING, arguments)).fetchall()
    reached = await (await driver.execute(_REACHED, arguments)).fetchone()
    assert reached is not None
    looked_at, last = reached
    count = await _make_due(driver, found, at) if found else 0
    if len(found) == REPLAYED_AT_ONCE:
        return Replayed(count=count, after=found[-1][0])
    return Replayed(count=count, after=last if looked_at == _LOOKED_AT_AT_ONCE else None)


async def _while_no_endpoint_goes(
    connection: AsyncConnection,
) -> psycopg.AsyncConnection[Any]:
    """Return the driver; until the end of the database transaction no endpoint is deleted.

    Or what it has not been told would come to wait for an endpoint that is not there any more.
    """
    driver = await driver_async(connection)
    await driver.execute("SELECT pg_advisory_xact_lock_shared(%s)", [DISPATCH_LOCK])
    return driver


async def _make_due(
    driver: psycopg.AsyncConnection[Any], rows: Sequence[tuple[Any, ...]], at: datetime
) -> int:
    queues = list({(row[3], row[4]) for row in rows if row[7]})
    columns = [[endpoint for endpoint, _ in queues], [subject for _, subject in queues]]
    if queues:
        await driver.execute(LOCK_QUEUES, columns)
    due = [place(row[5], row[2]) if row[7] else at for row in rows]
    changed = await driver.execute(
        _MAKE_DUE,
        {
            "ids": [row[0] for row in rows],
            "customers": [row[1] for row in rows],
            "endpoints": [row[3] for row in rows],
            "due": due,
            "soon": at + _SOON,
            "later": LATER,
        },
    )
    if queues:
        endpoints, subjects = columns
        release = {"endpoints": endpoints, "subjects": subjects, "at": at, "later": LATER}
        await driver.execute(RELEASE_NEXT, release)
    return changed.rowcount


def _first_id(moment: datetime) -> Id:
    """Return what sorts before every UUIDv7 of `moment` and later: they begin with milliseconds."""
    milliseconds = max(int(moment.timestamp() * 1000), 0)
    return Id(milliseconds.to_bytes(6) + bytes(10))


# --- tests -------------------------------------------------------------------------------------


async def record_test(  # noqa: PLR0913 - a row, by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    endpoint_id: Id,
    webhook_id: Id,
    body: bytes,
    attempt: Attempt,
) -> Id:
    """Keep a test that was made while somebody waited for it; returns its delivery."""
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


# --- words -------------------------------------------------------------------------------------


def subject_of(kind: str, subject_id: Id) -> str:
    """Return the resource that a webhook is about, as the outside sees it: `Card:0193...`."""
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


# Where a delivery goes: to its endpoint, or, had it none, to the platform's default one.
_TO_SEND: Final = """
    w.id, w.customer_id, w.webhook_id, e.id, w.subject_id, w.sequence, w.state, e.mode = 'FIFO'
"""
_WITH_ENDPOINT: Final = """
    LEFT JOIN webhook_endpoints e ON e.platform_id = w.platform_id AND e.deleted_at IS NULL
        AND CASE WHEN w.endpoint_id IS NULL THEN e.is_default ELSE e.id = w.endpoint_id END
"""

_ONE: Final = f"""
    SELECT {_TO_SEND} FROM webhook_deliveries w {_WITH_ENDPOINT}
    WHERE w.id = %(id)s AND w.platform_id = %(platform)s
"""

_LOOKED_AT: Final = """
    SELECT * FROM webhook_deliveries
    WHERE platform_id = %(platform)s AND id > %(after)s AND id < %(before)s
    ORDER BY id LIMIT %(looked_at)s
"""

_MATCHING: Final = f"""
    SELECT {_TO_SEND} FROM ({_LOOKED_AT}) w {_WITH_ENDPOINT}
    WHERE e.id IS NOT NULL AND w.type <> %(test)s
        AND w.created_at >= %(since)s AND w.created_at <= %(until)s
        AND (%(endpoint)s::uuid IS NULL OR e.id = %(endpoint)s)
        AND (w.state IN ('FAILED', 'NO_ENDPOINT')
            OR w.state = 'DELIVERED' AND NOT %(only_failed)s
            OR w.next_attempt_at > %(soon)s AND w.next_attempt_at < %(later)s)
    ORDER BY w.id LIMIT %(limit)s
"""

_REACHED: Final = f"SELECT count(*), max(id::text)::uuid FROM ({_LOOKED_AT}) w"

# What waits for its retry is due at once, and keeps its attempts; what is being sent is let be.
_MAKE_DUE: Final = """
    UPDATE webhook_deliveries w SET
        state = 'PENDING',
        next_attempt_at = again.due,
        endpoint_id = again.endpoint,
        attempts_before = CASE WHEN w.state = 'PENDING' THEN w.attempts_before ELSE w.attempts END
    FROM unnest(%(ids)s::uuid[], %(customers)s::uuid[], %(endpoints)s::uuid[],
        %(due)s::timestamptz[]) AS again (id, customer_id, endpoint, due)
    WHERE w.id = again.id AND w.customer_id = again.customer_id
        AND (w.state <> 'PENDING'
            OR w.next_attempt_at > %(soon)s AND w.next_attempt_at < %(later)s)
"""
