"""Cards: the list, and one with its card transactions and forms that freeze and close it.

The number of a card is nowhere.
"""

from typing import Annotated, Final, get_args

from fastapi import Query, Request, Response

from cardledger.api.console import navigation
from cardledger.api.console.access import forms
from cardledger.api.console.access.context import Viewer
from cardledger.api.console.access.forms import Managing
from cardledger.api.console.access.refusals import form_on
from cardledger.api.console.html import documents, rendering
from cardledger.api.console.lists.filtered_list import FilteredList
from cardledger.api.console.lists.filters import Filters
from cardledger.api.console.lists.list_page import list_page
from cardledger.api.console.routing import console_router, failure, redirect
from cardledger.api.http.errors import ApiError, not_found
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
_LIST: Final = FilteredList(
    _PATH, "cards.html", part=_PART, lists=navigation.HOLDERS, states=get_args(CardState)
)
_LATEST: Final = 20
_STATES: Final = {"freeze": "FROZEN", "unfreeze": "ACTIVE", "close": "CLOSED"}
_CHANGED: Final = (409, "The card has changed since this form was shown; reload its page.")

router = console_router()


class CardsQuery(Filters):
    """The filters of the list; all must match."""

    customer_id: CustomerId | None = None
    account_id: InternalAccountId | None = None
    platform_card_id: Name | None = None
    state: CardState | None = None


@router.get(_LIST.path)
@_LIST.view
async def list_cards(
    request: Request, query: Annotated[CardsQuery, Query()], call: Viewer
) -> Response:
    """List cards by creation, the newest first."""
    filters = CardFilters(
        cardholder_id=query.customer_id,
        account_id=query.account_id,
        platform_card_id=query.platform_card_id,
        state=query.state,
    )
    return await list_page(
        request,
        call,
        query,
        lambda connection, wanted: cards.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=wanted,
            count_limit=0,
        ),
        of=_LIST,
        api=rendering.with_filters(
            "/cards?sortOrder=desc",
            request.query_params,
            cardholderId="customerId",
            accountId="accountId",
            platformCardId="platformCardId",
            state="state",
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
    return await rendering.page(
        request,
        "card.html",
        call=call,
        part=_PART,
        card=card,
        name=name,
        latest=latest.items,
        has_more=latest.last is not None,
        key=forms.new_key,
        api=rendering.api_call(
            request,
            call,
            f"/cards/{name}",
            {
                **card.wire(),
                "cardTransactions": latest.items,
                "hasMoreCardTransactions": latest.last is not None,
            },
            note=documents.MORE,
        ),
    )


@router.post(f"{_PATH}/{{card_id}}/{{change}}")
@form_on(f"{_PATH}/{{card_id}}")
async def change_state(
    request: Request, action: Managing, card_id: CardId, change: str
) -> Response:
    """Freeze, unfreeze or close a card, once that is confirmed, and lead to it."""
    if change not in _STATES:
        raise not_found(Code.REFERENCE_NOT_FOUND, "page")
    if action.fields.get("confirmed") != "yes":
        raise ApiError(Code.INVALID_INPUT, "What is to be done with the card was not confirmed.")
    # Not from the snapshot, which may be that of a replica that lags behind.
    async with action.call.reading() as connection:
        card = await cards.get(connection, platform_id=action.call.platform_id, card_id=card_id)
    if card is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "card")
    name, state = public_id("Card", card_id), _STATES[change]
    # A PATCH has no Idempotency-Key: a form that is sent again finds a card that has changed.
    if action.fields.get("as_of") != card.updated_at.isoformat():
        return (
            redirect(f"{_PATH}/{name}")
            if card.state == state
            else await failure(request, *_CHANGED)
        )
    answer = await action.run("PATCH", f"/cards/{name}", {"state": state})
    if not answer.is_success:
        raise answer.error()
    return redirect(f"{_PATH}/{name}")
