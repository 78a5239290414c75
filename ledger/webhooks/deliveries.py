"""Webhook deliveries as platforms see them: list and read."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage import paging
from cardledger.ledger.storage.ids import beside
from cardledger.ledger.webhooks.ordering import LATER
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.tables.webhooks import APPROVALS_BEFORE, APPROVALS_EARLIER_BY
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.webhooks.endpoints import (
    WebhookAttemptResource,
    WebhookDeliveryResource,
)

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

_ATTEMPT: Final = select(
    _ATTEMPTS.delivery_id,
    _ATTEMPTS.number,
    _ATTEMPTS.attempted_at,
    _ATTEMPTS.duration_ms,
    _ATTEMPTS.status,
    _ATTEMPTS.error,
    _ATTEMPTS.response_head,
)

# The resource of a type whose first word is not the name of the resource.
_RESOURCES: Final[Mapping[str, str]] = {
    "TEST": "WebhookEndpoint",
    "INCOMING_PAYMENT": "Transaction",
    "OUTGOING_PAYMENT": "Transaction",
    "INVITATION": "UmaInvitation",
}


CLOCK_DIFFERENCE: Final = timedelta(days=1)
"""Between the id of a delivery and its time, at most: ids come from the clocks of processes.

A test that is repeated with its key keeps its id.
"""


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
class AttemptPage:
    """Which attempts of a delivery: the last `limit`, of those before the number `before`."""

    before: int | None = None
    limit: int


LAST_ATTEMPTS: Final = AttemptPage(limit=20)
"""Those that a delivery shows: there may be any number, each with 4 KB of a response."""


def delivery_id(near: Id, webhook: Id, endpoint: Id | None) -> Id:
    """Return the id of the delivery of `webhook` to `endpoint`, from that of any other delivery.

    So there is one delivery of a webhook to an endpoint, whether dispatching or replaying makes it.
    None: of what is stored for the endpoints that have missed it.
    """
    return beside(near, webhook, endpoint or Id(bytes(16)))


async def page(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: DeliveryFilters,
    wanted: paging.Wanted,
    count_limit: int = paging.COUNT_LIMIT,
    distance: int | None = None,
) -> paging.Page[WebhookDeliveryResource]:
    """Return one page of the platform's deliveries; `count_limit` is that of its total.

    With `distance`, filters without an index are looked for among so many of the platform's, or of
    its deliveries in the wanted state: the page may have fewer than wanted, and not be the last
    (`Page.reached`).
    """
    matching = [_DELIVERIES.platform_id == platform_id, *_matching(filters)]
    found = None
    if distance is not None and _has_no_index(filters):
        found = await paging.search(
            connection,
            _DELIVERIES.id,
            among=[
                _DELIVERIES.platform_id == platform_id,
                *_equal(DeliveryFilters(state=filters.state)),
                *_made_within(filters),
            ],
            matching=matching,
            wanted=wanted,
            distance=distance,
        )
        if not found.keys and count_limit == 0:
            return paging.without_items(found)
    return await paging.read(
        connection,
        _DELIVERY,
        table=tables.webhook_deliveries,
        matching=matching,
        wanted=wanted,
        item=_render,
        count_limit=count_limit,
        found=found,
    )


def _has_no_index(filters: DeliveryFilters) -> bool:
    """Return whether any number of deliveries may stand between two that match."""
    if filters.subject_ids:
        return False
    return filters.type is not None or None not in {filters.endpoint_id, filters.state}


def _matching(filters: DeliveryFilters) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions of `filters`."""
    yield from _equal(filters)
    if filters.since is not None:
        yield _DELIVERIES.created_at >= filters.since
    if filters.until is not None:
        yield _DELIVERIES.created_at <= filters.until
    yield from _made_within(filters)


def _equal(filters: DeliveryFilters) -> Iterator[ColumnElement[bool]]:
    conditions = {
        _DELIVERIES.endpoint_id: filters.endpoint_id,
        _DELIVERIES.type: filters.type,
        _DELIVERIES.state: filters.state,
    }
    yield from (column == value for column, value in conditions.items() if value is not None)
    yield from (_DELIVERIES.subject_id == subject for subject in filters.subject_ids)


def _made_within(filters: DeliveryFilters) -> Iterator[ColumnElement[bool]]:
    return paging.made_within(
        _DELIVERIES.id, filters.since, filters.until, difference=CLOCK_DIFFERENCE
    )


async def get(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    delivery_id: Id,
    attempts: AttemptPage = LAST_ATTEMPTS,
) -> WebhookDeliveryResource | None:
    """Return the platform's delivery with its payload and `attempts` in their order, or None."""
    rows = await connection.execute(
        _DELIVERY.add_columns(_DELIVERIES.body).where(
            _DELIVERIES.id == delivery_id, _DELIVERIES.platform_id == platform_id
        )
    )
    row = rows.one_or_none()
    if row is None:
        return None
    listed = await _attempts(connection, delivery_id, attempts)
    shown = {"attempt_list": listed, "payload": json.loads(row.body)}
    return _render(row).model_copy(update=shown)


async def _attempts(
    connection: AsyncConnection, delivery_id: Id, wanted: AttemptPage
) -> list[WebhookAttemptResource]:
    statement = _ATTEMPT.where(_ATTEMPTS.delivery_id == delivery_id).limit(wanted.limit)
    if wanted.before is not None:
        statement = statement.where(_ATTEMPTS.number < wanted.before)
    rows = await connection.execute(statement.order_by(_ATTEMPTS.number.desc()))
    return [_attempt(row) for row in reversed(rows.all())]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptedDeliveries:
    """The newest deliveries about a resource; `attempts` has the last ones of each, in order."""

    items: Sequence[WebhookDeliveryResource]
    attempts: Mapping[Id, Sequence[WebhookAttemptResource]]
    has_more: bool


async def newest_about(
    connection: AsyncConnection, *, platform_id: Id, subject_id: Id, limit: int, attempts: int
) -> AttemptedDeliveries:
    """Return the `limit` newest deliveries about a resource, each with its last `attempts`."""
    newest = (
        _DELIVERY.where(
            _DELIVERIES.platform_id == platform_id, _DELIVERIES.subject_id == subject_id
        )
        .order_by(_DELIVERIES.id.desc())
        .limit(limit + 1)
        .subquery("newest")
    )
    latest = (
        _ATTEMPT.where(_ATTEMPTS.delivery_id == newest.c.id)
        .order_by(_ATTEMPTS.number.desc())
        .limit(attempts)
        .lateral("latest")
    )
    rows = await connection.execute(
        select(newest, latest)
        .outerjoin_from(newest, latest, true())
        .order_by(newest.c.id.desc(), latest.c.number)
    )
    found: dict[Id, WebhookDeliveryResource] = {}
    tried: dict[Id, list[WebhookAttemptResource]] = {}
    for row in rows:
        if row.id not in found:
            found[row.id], tried[row.id] = _render(row), []
        if row.number is not None:
            tried[row.id].append(_attempt(row))
    return AttemptedDeliveries(
        items=list(found.values())[:limit], attempts=tried, has_more=len(found) > limit
    )


# --- rendering ---------------------------------------------------------------------------------


def subject_of(kind: str, subject_id: Id) -> str:
    """Return the public id of the resource that a webhook is about: `Card:0193...`."""
    group = kind.partition(".")[0]
    resource = _RESOURCES.get(group) or "".join(word.capitalize() for word in group.split("_"))
    return public_id(resource, subject_id)


def _attempt(row: Row[*tuple[Any, ...]]) -> WebhookAttemptResource:
    return WebhookAttemptResource(
        number=row.number,
        attempted_at=row.attempted_at,
        duration_ms=row.duration_ms,
        status=row.status,
        error=row.error,
        response_head=row.response_head,
    )


def _render(row: Row[*tuple[Any, ...]]) -> WebhookDeliveryResource:
    due = row.next_attempt_at
    if due is not None and due < APPROVALS_BEFORE:
        due += APPROVALS_EARLIER_BY
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
