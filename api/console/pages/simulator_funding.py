"""A deposit on the account of a card, by the simulator: amount and account are shown before."""

from typing import Annotated, Final

from fastapi import Query, Request, Response

from cardledger.api.console import navigation
from cardledger.api.console.access import forms
from cardledger.api.console.access.context import ConsoleContext, Viewer
from cardledger.api.console.access.forms import Transacting
from cardledger.api.console.access.proven_addresses import proven
from cardledger.api.console.access.refusals import form_on
from cardledger.api.console.html import rendering
from cardledger.api.console.lists.filters import Filters
from cardledger.api.console.pages.simulator import show_again
from cardledger.api.console.routing import console_router, redirect
from cardledger.api.console.simulator import operations
from cardledger.api.http.authentication import require
from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.ledger.cards import registry as cards
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.projections import accounts
from cardledger.schema.wire.common import CardId, CardTransactionId, public_id
from cardledger.schema.wire.customers.accounts import InternalAccountResource
from cardledger.schema.wire.errors import Code

_PART: Final = navigation.SIMULATOR
_CARDS: Final = f"{_PART.path}/cards"
_CARD: Final = f"{_CARDS}/{{card_id}}"

_on_card: Final = form_on(
    _CARD, show=show_again, form=operations.FUND, labels={operations.AMOUNT: "Amount"}
)

_NOTE: Final = "The API returns the account; `deposit` is what is to be confirmed."

router = console_router()


class FundQuery(Filters):
    """The amount as it was typed, and the purchase that the page of the card shows."""

    amount: str = ""
    purchase: CardTransactionId | None = None


@router.get(f"{_CARD}/fund")
@_on_card
async def confirm_fund(
    request: Request, card_id: CardId, query: Annotated[FundQuery, Query()], call: Viewer
) -> Response:
    """Show the amount as it was read, and the account, before that is credited."""
    require(call.token, Permission.TRANSACT)
    account = await _account_of(call, card_id)
    amount = operations.deposit_of({"amount": query.amount}, account.balance.currency.code)
    if not amount.minor_units:
        raise invalid_field("amount", "must be greater than 0")
    name = public_id("InternalAccount", account.id)
    return await rendering.page(
        request,
        "simulator_fund.html",
        call=call,
        part=_PART,
        amount=amount.minor_units,
        account=account,
        name=name,
        card=public_id("Card", card_id),
        purchase=(None if query.purchase is None else public_id("CardTransaction", query.purchase)),
        key=forms.new_key(),
        api=rendering.api_call(
            request,
            call,
            f"/internal-accounts/{name}",
            {**account.wire(), "deposit": {"amount": amount.minor_units}},
            note=_NOTE,
        ),
    )


@router.post(f"{_CARD}/fund")
@_on_card
async def fund(card_id: CardId, action: Transacting) -> Response:
    """Credit the confirmed account with the confirmed amount, and show the card."""
    fields = action.fields
    account = await _account_of(action.call, card_id)
    name = public_id("InternalAccount", account.id)
    if fields.get("account") != name:
        raise invalid_field("account", "must be the funding account of the card")
    amount = operations.deposit_of(fields, account.balance.currency.code)
    answer = await action.run("POST", operations.fund_path(name), {"amount": amount.minor_units})
    if not answer.is_success:
        raise answer.error()
    shown = {
        "made": operations.FUND,
        "key": fields[forms.KEY],
        "amount": fields.get("amount", ""),
    }
    if fields.get("purchase"):
        shown["purchase"] = fields["purchase"]
    page = f"{_CARDS}/{public_id('Card', card_id)}"
    return redirect(proven(page, shown, action.call.session, action.call.keys))


async def _account_of(call: ConsoleContext, card_id: CardId) -> InternalAccountResource:
    """Return the account that the card spends from first."""
    async with call.snapshot() as connection:
        card = await cards.get(connection, platform_id=call.platform_id, card_id=card_id)
        if card is None:
            raise not_found(Code.REFERENCE_NOT_FOUND, "card")
        account = None
        if card.funding_sources:
            account = await accounts.get(
                connection, platform_id=call.platform_id, account_id=card.funding_sources[0]
            )
    if account is None:
        raise ApiError(Code.INVALID_INPUT, "A closed card has no account that could be funded.")
    return account
