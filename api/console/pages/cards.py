"""Cards: the list, and one with its card transactions. The number of a card is nowhere."""

from typing import Annotated, Final, get_args

from fastapi import Query, Request, Response

from cardledger.api.console import navigation, rendering
from cardledger.api.console.context import Viewer
from cardledger.api.console.filters import Filters, Sent
from cardledger.api.console.routing import console_router
from cardledger.api.http.errors import not_found
from cardledger.api.http.responses import Listing
from cardledger.ledger.cards import registry as cards
from cardledger.ledger.cards.registry import CardFilters
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.card_transactions import CardTransactionFilters
from cardledger.ledger.storage import paging
from cardledger.schema.wire.cards.cards import CardState
from cardledger.schema.wire.common import CardId, CustomerId, InternalAccountId, Name, public_id
from cardledger.schema.wire.errors import Code

_PART: Final = navigation.ACCOUNTS
_PATH: Final = navigation.CARDS.path
_LATEST: Final = 20

router = console_router()


class CardsQuery(Filters):
    """The filters of the list; all must match."""

    customer_id: CustomerId | None = None
    account_id: InternalAccountId | None = None
    platform_card_id: Name | None = None
    state: CardState | None = None


@router.get(_PATH)
async def list_cards(
    request: Request, query: Annotated[CardsQuery, Query()], call: Viewer
) -> Response:
    """List cards by creation, the newest first."""
    listing = Listing(call, "console cards", query)
    async with call.snapshot() as connection:
        page = await cards.page(
            connection,
            platform_id=call.platform_id,
            filters=CardFilters(
                cardholder_id=query.customer_id,
                account_id=query.account_id,
                platform_card_id=query.platform_card_id,
                state=query.state,
            ),
            wanted=listing.wanted(newest_first=True),
            count_limit=0,
        )
    return rendering.page(
        request,
        "cards.html",
        call=call,
        part=_PART,
        lists=navigation.HOLDERS,
        sent=Sent(request.query_params),
        states=get_args(CardState),
        items=page.items,
        next_cursor=listing.next_cursor(page),
        api=rendering.api_call(
            request,
            call,
            rendering.with_filters(
                "/cards?limit=50",
                request.query_params,
                cardholderId="customerId",
                accountId="accountId",
                platformCardId="platformCardId",
                state="state",
            ),
            {"data": [item.wire() for item in page.items]},
        ),
    )


@router.get(f"{_PATH}/{{card_id}}")
async def show_card(request: Request, card_id: CardId, call: Viewer) -> Response:
    """Show a card with its newest card transactions."""
    async with call.snapshot() as connection:
        card = await cards.get(connection, platform_id=call.platform_id, card_id=card_id)
        if card is None:
            raise not_found(Code.REFERENCE_NOT_FOUND, "card")
        latest = await card_transactions.page(
            connection,
            platform_id=call.platform_id,
            filters=CardTransactionFilters(card_id=card_id),
            wanted=paging.Wanted(limit=_LATEST, newest_first=True),
            count_limit=0,
        )
    name = public_id("Card", card_id)
    return rendering.page(
        request,
        "card.html",
        call=call,
        part=_PART,
        card=card,
        name=name,
        latest=latest.items,
        has_more=latest.last is not None,
        api=rendering.api_call(request, call, f"/cards/{name}", card.wire()),
    )
