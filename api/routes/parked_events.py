"""Parked events of a platform: those that wait for the event that they reverse or change."""

from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http.errors import not_found
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.messaging import parked_events
from cardledger.ledger.messaging.parked_events import Filter, ParkedEvent
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.engines import driver_async
from cardledger.schema.wire.common import Page, PageQuery, ParkedEventId
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.outcomes import ParkedEventResource

_PATH = "/parked-events"

router = guarded_router("Transactions")


@router.get(_PATH, response_model=Page[ParkedEventResource])
@requires(Permission.VIEW)
async def list_parked_events(query: Annotated[PageQuery, Query()], call: PlatformCall) -> Response:
    """List parked events, newest first, without the events themselves.

    An event is parked until the event that it reverses or changes arrives; then it is applied.
    """
    listing = Listing(call, "parked events", query)
    wanted = listing.wanted(newest_first=True)
    which = Filter(platform_id=call.platform_id, before=wanted.after)
    async with call.reading() as connection:
        # One more than is returned shows whether there is a next page.
        found = await parked_events.find(
            await driver_async(connection), which, limit=wanted.limit + 1
        )
    shown = found[: wanted.limit]
    last = shown[-1].id if len(found) > len(shown) else None
    items = [_resource(parked, with_event=False) for parked in shown]
    return listing.response(paging.Page(items=items, last=last, total_count=None))


@router.get(_PATH + "/{parked_event_id}", response_model=ParkedEventResource)
@requires(Permission.VIEW)
async def get_parked_event(parked_event_id: ParkedEventId, call: PlatformCall) -> Response:
    """Return a parked event; it is not found any more once it was applied."""
    which = Filter(platform_id=call.platform_id, id=parked_event_id)
    async with call.reading() as connection:
        found = await parked_events.find(await driver_async(connection), which, limit=1)
    if not found:
        raise not_found(Code.REFERENCE_NOT_FOUND, "parked event")
    return resource_response(_resource(found[0], with_event=True))


def _resource(parked: ParkedEvent, *, with_event: bool) -> ParkedEventResource:
    return ParkedEventResource(
        id=parked.id,
        type=parked.type,
        source=parked.source,
        reference=parked.reference,
        card_id=parked.card_id,
        issuer_transaction_token=parked.issuer_transaction_token,
        event=parked.body if with_event else None,
        created_at=parked.received_at,
    )
