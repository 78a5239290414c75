"""Simulator: cardholders, and a form for every operation of the sandbox on a card."""

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Query, Request, Response
from pydantic import Field, ValidationError

from cardledger.api.console import navigation
from cardledger.api.console.access import forms, refusals
from cardledger.api.console.access.context import ConsoleContext, Viewer
from cardledger.api.console.access.forms import Action, Answer, Transacting
from cardledger.api.console.access.proven_addresses import Tag, is_proven, proven
from cardledger.api.console.access.refusals import form_on
from cardledger.api.console.histories import folded
from cardledger.api.console.html import documents, picture, rendering
from cardledger.api.console.html.rendering import ApiCall
from cardledger.api.console.lists.filters import Filters
from cardledger.api.console.lists.list_page import list_call
from cardledger.api.console.routing import console_router, redirect
from cardledger.api.console.simulator import currencies, operations, sandbox_values, stories
from cardledger.api.console.simulator.cardholders import (
    CardholderRequest,
    NotApprovedError,
    SetUpError,
    requests_of,
    set_up,
)
from cardledger.api.console.simulator.stories import StepRequest
from cardledger.api.http.errors import ApiError, invalid_field, not_found, unknown_path
from cardledger.ledger.cards import registry as cards
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.projections import accounts
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.card_transactions import CardTransactionFilters
from cardledger.ledger.queries.console import purchase_history
from cardledger.ledger.queries.console.purchase_history import PurchaseHistory, UnfoldedHistory
from cardledger.ledger.storage import paging
from cardledger.schema.wire.cards.cards import CardResource
from cardledger.schema.wire.common import CardId, CardTransactionId, parse_id, public_id
from cardledger.schema.wire.customers.accounts import MAX_FUND, InternalAccountResource
from cardledger.schema.wire.errors import Code

_PART: Final = navigation.SIMULATOR
_CARDS: Final = f"{_PART.path}/cards"
_CARD: Final = f"{_CARDS}/{{card_id}}"
_LATEST: Final = 6  # Purchases of the card that can be chosen.
_SHOWN_FIELDS: Final = ("amount", "descriptor", "final", *operations.MERCHANT_FIELDS)
_LABELS: Final = {
    "amount": "Amount",
    "descriptor": "Merchant",
    "mcc": "Category (MCC)",
    "country": "Country",
    "final": "Final",
}
_MERCHANT: Final = {
    f"merchant.{name}": name for name in (operations.DESCRIPTOR, *operations.MERCHANT_FIELDS)
}
_CARDHOLDER: Final = "cardholder"  # What the page of a card says was made.
_MAX_VALUE: Final = 300
_ONLY_CARDS: Final = (
    "The command lists the latest cards. Stories and forms are requests of their own, which the"
    " page that follows shows."
)

router = console_router()


class CardQuery(Filters):
    """What a card's page shows besides the card: a purchase, and the request that was just made.

    `key` is the Idempotency-Key of that request; `name`, `balance` in minor units and `ending` are
    of a cardholder that was just made. Without the `tag` that proves them, only the purchase is
    shown.
    """

    purchase: CardTransactionId | None = None
    made: str | None = None
    amount: str = ""
    descriptor: str = ""
    final: str = ""
    mcc: str = ""
    country: str = ""
    name: str = ""
    balance: Annotated[int, Field(ge=0, le=MAX_FUND)] = 0
    ending: str = ""
    key: Annotated[str, Field(pattern=forms.KEY_PATTERN)] | None = None
    tag: Tag = ""


@router.get(_PART.path)
async def show_simulator(request: Request, call: Viewer) -> Response:
    """Show the stories, and the form of a new cardholder."""
    async with call.snapshot() as connection:
        latest = await cards.page(
            connection,
            platform_id=call.platform_id,
            filters=cards.CardFilters(),
            wanted=paging.Wanted(limit=_LATEST, newest_first=True),
            count_limit=0,
        )
        platform = await platforms.get(connection, call.platform_id)
    currency = currencies.usual(platform.supported_currencies)
    return await rendering.page(
        request,
        "simulator.html",
        call=call,
        part=_PART,
        stories=stories.STORIES,
        currency=currency,
        balance=None if currency is None else currencies.balance(currency),
        with_amounts=currencies.with_amounts,
        latest=latest.items,
        new_key=forms.new_key,
        customer_values=sandbox_values.CUSTOMERS,
        card_values=sandbox_values.CARDS,
        api=list_call(
            request,
            call,
            Filters(limit=_LATEST),
            "/cards?sortOrder=desc",
            latest.items,
            note=_ONLY_CARDS,
        ),
    )


@router.get(f"{_PART.path}/card")
@form_on(_PART.path, show=show_simulator)
async def find_card(request: Request, call: Viewer, card: str = "") -> Response:
    """Lead to the page of a card by its id, as a form sends it."""
    try:
        name = public_id("Card", parse_id("Card", card.strip()[:_MAX_VALUE]))
    except ValueError as error:
        raise invalid_field("card", str(error)) from None
    del request, call
    return redirect(f"{_CARDS}/{name}")


@router.post(f"{_PART.path}/cardholders")
@form_on(_PART.path, show=show_simulator, labels={"name": "Name", "amount": "Balance"})
async def create_cardholder(action: Transacting) -> Response:
    """Make a customer, its account with money, and a card; lead to the card."""
    fields = action.fields
    currency, balance = await _balance_of(action)
    wanted = CardholderRequest(
        name=fields.get("name", "").strip() or "Ada Example",
        currency=currency,
        balance=balance,
        card_ending=fields.get("card_ending", ""),
    )
    try:
        made = await set_up(action, wanted, run_id=fields[forms.KEY])
    except NotApprovedError as error:
        return redirect(f"{navigation.CUSTOMERS.path}/{error.customer}")
    except SetUpError as error:
        raise error.error({"fullName": "name"}) from None
    shown = {
        "made": _CARDHOLDER,
        "key": fields[forms.KEY],
        "name": wanted.name,
        "balance": str(balance),
        "ending": wanted.card_ending,
    }
    return redirect(proven(f"{_CARDS}/{made.card}", shown, action.call.session, action.call.keys))


async def _balance_of(action: Action) -> tuple[str | None, int]:
    """Return the currency of a new cardholder's account, and its balance in minor units.

    Of a form without an amount, they are the usual ones; of one whose amount is empty, the balance
    is 0.
    """
    amount = action.fields.get("amount")
    if amount is not None and amount.strip():
        typed = operations.deposit_of(action.fields)
        return typed.currency, typed.minor_units
    async with action.call.snapshot() as connection:
        platform = await platforms.get(connection, action.call.platform_id)
    currency = currencies.usual(platform.supported_currencies)
    return currency, 0 if currency is None or amount is not None else currencies.balance(currency)


@router.get(_CARD)
async def show_card(
    request: Request, card_id: CardId, query: Annotated[CardQuery, Query()], call: Viewer
) -> Response:
    """Show a card with the forms of all operations, and the picture of one of its purchases."""
    if not is_proven(request, call.session, call.keys):
        query = CardQuery(purchase=query.purchase)
    return await _card_page(request, call, card_id, query)


async def show_again(request: Request, call: ConsoleContext) -> Response:
    """Show the card, and the purchase that a refused form was about."""
    card_id = parse_id("Card", request.path_params["card_id"])
    try:
        query = CardQuery.model_validate({"purchase": refusals.sent_in(request).get("purchase")})
    except ValidationError:
        query = CardQuery()
    return await _card_page(request, call, card_id, query)


@router.post(f"{_CARD}/{{name}}")
@form_on(_CARD, show=show_again, form="{name}", labels=_LABELS)
async def simulate(request: Request, action: Transacting, card_id: CardId, name: str) -> Response:
    """Run an operation on a card, and show what it has changed."""
    call, fields = action.call, action.fields
    card = await _card(call, card_id)
    operation = operations.BY_NAME.get(name)
    if operation is None:
        raise unknown_path()
    purchase = fields.get("purchase") or None
    body = operations.body_of(operation, fields, purchase=purchase, currency=card.currency)
    path = operations.path_of(public_id("Card", card_id), name)
    sent = {field: fields[field] for field in _SHOWN_FIELDS if fields.get(field)}
    sent |= {"made": name, "key": fields[forms.KEY]}
    try:  # Before anything moves.
        query = CardQuery.model_validate({"purchase": purchase, **sent})
    except ValidationError:
        raise invalid_field("purchase", "must be the id of a card transaction") from None
    answer = await action.run("POST", path, body)
    if not answer.is_success:
        raise answer.error(_MERCHANT)
    if name == "balance_inquiry":  # It is not recorded: only this answer shows it.
        return await _card_page(request, call, card_id, query, answer=answer)
    shown = {"purchase": answer.body["id"], **sent}
    page = f"{_CARDS}/{public_id('Card', card_id)}"
    return redirect(proven(page, shown, call.session, call.keys))


async def _card(call: ConsoleContext, card_id: CardId) -> CardResource:
    async with call.snapshot() as connection:
        card = await cards.get(connection, platform_id=call.platform_id, card_id=card_id)
    if card is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "card")
    return card


async def _card_page(
    request: Request,
    call: ConsoleContext,
    card_id: CardId,
    query: CardQuery,
    *,
    answer: Answer | None = None,
) -> Response:
    account: InternalAccountResource | None = None
    events: UnfoldedHistory | None = None
    async with call.snapshot() as connection:
        card = await cards.get(connection, platform_id=call.platform_id, card_id=card_id)
        if card is None:
            raise not_found(Code.REFERENCE_NOT_FOUND, "card")
        if card.funding_sources:
            account = await accounts.get(
                connection, platform_id=call.platform_id, account_id=card.funding_sources[0]
            )
        purchases = await card_transactions.page(
            connection,
            platform_id=call.platform_id,
            filters=CardTransactionFilters(card_id=card_id),
            wanted=paging.Wanted(limit=_LATEST, newest_first=True),
            count_limit=0,
        )
        if query.purchase is not None:
            events = await purchase_history.read(
                connection, platform_id=call.platform_id, card_transaction_id=query.purchase
            )
            if events is None or events.resource.card_id != card_id:
                raise not_found(Code.TRANSACTION_NOT_FOUND, "card transaction")
    history = None if events is None else await folded(call, events)
    name = public_id("Card", card_id)
    return await rendering.page(
        request,
        "simulator_card.html",
        call=call,
        part=_PART,
        card=card,
        name=name,
        account=account,
        purchases=purchases.items,
        purchase=None if query.purchase is None else public_id("CardTransaction", query.purchase),
        query=query,
        operations=operations.OPERATIONS,
        values=sandbox_values.MERCHANTS,
        new_key=forms.new_key,
        answer=answer,
        made=_made(request, call, card, query),
        history=history,
        picture=None if history is None else picture.draw(history),
        api=_api(
            request,
            call,
            card,
            history,
            {
                "internalAccount": None if account is None else account.wire(),
                "cardTransactions": purchases.items,
                **({} if answer is None else {"balanceInquiry": answer.body}),
            },
        ),
    )


def _api(
    request: Request,
    call: ConsoleContext,
    card: CardResource,
    history: PurchaseHistory | None,
    others: documents.Document,
) -> ApiCall:
    if history is None:
        return rendering.api_call(
            request,
            call,
            f"/cards/{public_id('Card', card.id)}",
            {**card.wire(), **others},
            note=documents.MORE,
        )
    return documents.events_call(request, call, history, {"card": card.wire(), **others})


def _made(
    request: Request, call: ConsoleContext, card: CardResource, query: CardQuery
) -> Sequence[ApiCall]:
    """Return the requests that the fields of `query` make; none when it has none."""
    try:
        found = _requests_of(card, query)
    except ApiError:
        return []  # The address was edited.
    return [
        rendering.api_call(request, call, each.path, body=each.body, key=each.key) for each in found
    ]


def _requests_of(card: CardResource, query: CardQuery) -> Sequence[StepRequest]:
    purchase = None if query.purchase is None else public_id("CardTransaction", query.purchase)
    fields = query.model_dump(include=set(_SHOWN_FIELDS))
    account = public_id("InternalAccount", card.funding_sources[0]) if card.funding_sources else ""
    if query.made == _CARDHOLDER and account and query.key:
        wanted = CardholderRequest(
            name=query.name,
            currency=card.currency,
            balance=query.balance,
            card_ending=query.ending,
        )
        customer = public_id("Customer", card.cardholder_id)
        return requests_of(wanted, customer=customer, account=account, run_id=query.key)
    if query.made == operations.FUND and account:
        body = {"amount": operations.amount_of(fields, card.currency).minor_units}
        return [StepRequest(path=operations.fund_path(account), body=body, key=query.key)]
    operation = operations.BY_NAME.get(query.made or "")
    if operation is None:
        return []
    body = operations.body_of(operation, fields, purchase=purchase, currency=card.currency)
    path = operations.path_of(public_id("Card", card.id), operation.name)
    return [StepRequest(path=path, body=body, key=query.key)]
