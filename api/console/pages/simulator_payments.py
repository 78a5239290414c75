"""Payments from outside, by the simulator: amount and account are shown before money moves."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.console import navigation
from cardledger.api.console.access import forms
from cardledger.api.console.access.context import ConsoleContext, Viewer
from cardledger.api.console.access.forms import Action, Answer, Transacting
from cardledger.api.console.access.refusals import form_on
from cardledger.api.console.html import rendering
from cardledger.api.console.html.rendering import ApiCall
from cardledger.api.console.lists.filters import Filters, NamedAmount
from cardledger.api.console.routing import console_router
from cardledger.api.console.simulator import operations
from cardledger.api.http.authentication import require
from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.quotes import arrivals, records
from cardledger.ledger.quotes.arrivals import Receiver
from cardledger.ledger.quotes.records import Quote
from cardledger.ledger.quotes.refusals import QuoteRefusedError
from cardledger.schema.wire.common import format_amount, parse_id, public_id
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.exchange.rates import MAX_QUOTED

_PART: Final = navigation.SIMULATOR
_PAYMENTS: Final = navigation.PAYMENTS
_SEND: Final = f"{_PAYMENTS}/send"
_RECEIVE: Final = f"{_PAYMENTS}/receive"
_SENDER: Final = "$success.usd@sandbox.uma.money"
_USUAL: Final = "USD"
_NOTE: Final = "The API returns the customer; `payment` is what is to be confirmed."
_RATE_TEXT: Final = re.compile(r"[0-9]{1,10}(\.[0-9]{1,12})?", re.ASCII)
_MAX_VALUE: Final = 320
_FIELDS: Final = {
    "quoteId": "quote",
    "currencyCode": "quote",
    "currencyAmount": "quote",
    "senderUmaAddress": "sender",
    "receiverUmaAddress": "receiver",
    "customerId": "receiver",
    "receivingCurrencyCode": "amount",
    "receivingCurrencyAmount": "amount",
    "sourceCurrency": "source",
    "destinationCurrency": "destination",
    "exchangeRate": "rate",
}
"""Fields of the forms by those of the API."""

router = console_router()


class SendQuery(Filters):
    """The quote that is to be paid, as it was typed."""

    quote: str = ""


class ReceiveQuery(Filters):
    """A payment that is to arrive, as it was typed."""

    sender: str = ""
    receiver: str = ""
    amount: str = ""


@router.get(_PAYMENTS)
async def show_payments(request: Request, call: Viewer) -> Response:
    """Show the forms: a quote is paid, a payment arrives, a rate is set."""
    return await _forms(request, call)


_on_send: Final = form_on(_PAYMENTS, show=show_payments, form="send", labels={"quote": "Quote"})
_on_receive: Final = form_on(
    _PAYMENTS,
    show=show_payments,
    form="receive",
    labels={"sender": "Sender", "receiver": "Receiver", "amount": "Amount"},
)
_on_rate: Final = form_on(
    _PAYMENTS,
    show=show_payments,
    form="rate",
    labels={"source": "Source", "destination": "Destination", "rate": "Rate"},
)


@router.get(_SEND)
@_on_send
async def confirm_send(
    request: Request, query: Annotated[SendQuery, Query()], call: Viewer
) -> Response:
    """Show what a quote needs, and from whom to whom, before it is paid."""
    require(call.token, Permission.TRANSACT)
    quote = await _quote_of(call, query.quote)
    if not quote.is_funded:
        raise invalid_field("quote", "is paid from an account, not from outside")
    if quote.status != records.PENDING or quote.is_expired(call.now()):
        raise invalid_field("quote", "cannot be paid any more, or is not authorized yet")
    name = public_id("Quote", quote.id)
    return await rendering.page(
        request,
        "simulator_send.html",
        call=call,
        part=_PART,
        quote=quote,
        name=name,
        key=forms.new_key(),
        api=rendering.api_call(
            request,
            call,
            f"/quotes/{name}",
            {
                "id": name,
                "status": quote.status,
                "totalSendingAmount": quote.sending_amount,
                "totalReceivingAmount": quote.receiving_amount,
                "transactionId": public_id("Transaction", quote.transaction_id),
            },
            note="The API returns more of the quote.",
        ),
    )


@router.post(_SEND)
@_on_send
async def send(request: Request, action: Transacting) -> Response:
    """Pay the confirmed quote from outside, and show its transaction."""
    quote = await _quote_of(action.call, action.fields.get("quote", ""))
    body = {
        "quoteId": public_id("Quote", quote.id),
        "currencyCode": quote.sending_currency,
        "currencyAmount": quote.sending_amount,
    }
    return await _carried_out(request, action, "/sandbox/send", body)


@router.get(_RECEIVE)
@_on_receive
async def confirm_receive(
    request: Request, query: Annotated[ReceiveQuery, Query()], call: Viewer
) -> Response:
    """Show the amount as it was read, and the account that it goes to, before it arrives."""
    require(call.token, Permission.TRANSACT)
    amount = _amount_of(query.amount)
    if not query.sender.strip():
        raise invalid_field("sender", "is required")
    async with call.snapshot() as connection:
        receiver = await _receiver_of(connection, call, query.receiver, amount.currency)
        customer = await customers.get(
            connection, platform_id=call.platform_id, customer_id=receiver.customer_id
        )
    name = public_id("Customer", receiver.customer_id)
    return await rendering.page(
        request,
        "simulator_receive.html",
        call=call,
        part=_PART,
        sender=query.sender,
        amount=amount,
        account=public_id("InternalAccount", receiver.account_id),
        name=name,
        uma_address=receiver.uma_address,
        key=forms.new_key(),
        api=rendering.api_call(
            request,
            call,
            f"/customers/{name}",
            {
                **({} if customer is None else customer.wire()),
                "payment": {
                    "senderUmaAddress": query.sender,
                    "receivingCurrencyCode": amount.currency,
                    "receivingCurrencyAmount": amount.minor_units,
                    "internalAccountId": public_id("InternalAccount", receiver.account_id),
                },
            },
            note=_NOTE,
        ),
    )


@router.post(_RECEIVE)
@_on_receive
async def receive(request: Request, action: Transacting) -> Response:
    """Let the confirmed payment arrive on the confirmed account, and show its transaction."""
    fields = action.fields
    amount = _amount_of(fields.get("amount", ""))
    async with action.call.snapshot() as connection:
        receiver = await _receiver_of(
            connection, action.call, fields.get("receiver", ""), amount.currency
        )
    if fields.get("account") != public_id("InternalAccount", receiver.account_id):
        raise forms.outdated()
    body = {
        "senderUmaAddress": fields.get("sender", "").strip(),
        "customerId": public_id("Customer", receiver.customer_id),
        "receivingCurrencyCode": amount.currency,
        "receivingCurrencyAmount": amount.minor_units,
    }
    return await _carried_out(request, action, "/sandbox/uma/receive", body)


@router.post(_PAYMENTS)
@_on_rate
async def set_rate(request: Request, action: Transacting) -> Response:
    """Set the rate of two currencies for the platform, and show what the API lists for them."""
    fields = action.fields
    rate = fields.get("rate", "").strip()
    if not _RATE_TEXT.fullmatch(rate):
        raise invalid_field("rate", "must be a number, such as 1.0924")
    body = {
        "sourceCurrency": fields.get("source", "").strip().upper(),
        "destinationCurrency": fields.get("destination", "").strip().upper(),
        # A number of JSON. The API reads the shortest decimal that it is written as.
        "exchangeRate": float(rate),
    }
    return await _carried_out(request, action, "/sandbox/exchange-rates", body)


async def _carried_out(
    request: Request, action: Action, path: str, body: Mapping[str, Any]
) -> Response:
    """Run the operation at `path`, and show the forms with its answer and the request."""
    answer = await action.run("POST", path, body)
    if not answer.is_success:
        raise _refused(answer)
    made = rendering.api_call(
        request, action.call, path, answer.body, body=body, key=action.fields[forms.KEY]
    )
    return await _forms(request, action.call, made=made)


def _refused(answer: Answer) -> ApiError:
    """Return the error of a form: also of one that names what does not exist, by its field."""
    error = answer.error(_FIELDS)
    if (error.details or {}).get("errors"):
        return ApiError(Code.INVALID_INPUT, error.message, details=error.details)
    return error


async def _forms(
    request: Request, call: ConsoleContext, *, made: ApiCall | None = None
) -> Response:
    document = None if made is None else made.document
    currency = _USUAL
    if made is None:  # After it nothing is read: what was done is shown, whatever else is busy.
        async with call.snapshot() as connection:
            platform = await platforms.get(connection, call.platform_id)
        currency = next(iter(platform.supported_currencies), _USUAL)
    return await rendering.page(
        request,
        "simulator_payments.html",
        call=call,
        part=_PART,
        sender=_SENDER,
        currency=currency,
        new_key=forms.new_key,
        made=made,
        payment=document if document is not None and "id" in document else None,
        rates=() if document is None else document.get("data", ()),
    )


def _amount_of(text: str) -> NamedAmount:
    amount = operations.amount_of({operations.AMOUNT: text})
    if not 0 < amount.minor_units <= MAX_QUOTED:
        limit = format_amount(MAX_QUOTED, amount.currency)
        raise invalid_field("amount", f"must be greater than 0, and at most {limit}")
    return amount


async def _quote_of(call: ConsoleContext, text: str) -> Quote:
    """Return the quote that a form names."""
    try:
        quote_id = parse_id("Quote", text.strip()[:_MAX_VALUE])
    except ValueError as error:
        raise invalid_field("quote", str(error)) from None
    async with call.snapshot() as connection:
        found = await records.get(connection, platform_id=call.platform_id, quote_id=quote_id)
    if found is None:
        raise invalid_field("quote", "is not a quote of this platform")
    return found.quote


async def _receiver_of(
    connection: AsyncConnection, call: ConsoleContext, text: str, currency: str
) -> Receiver:
    """Return the receiver that a form names, by id or UMA address, with its account in `currency`.

    Raises: ApiError INVALID_INPUT.
    """
    named = text.strip()[:_MAX_VALUE]
    try:
        is_address = named.startswith("$")
        customer_id = None if is_address else parse_id("Customer", named)
        found = await arrivals.receiver(
            connection,
            platform_id=call.platform_id,
            customer_id=customer_id,
            address=named if is_address else None,
            currency=currency,
        )
    except QuoteRefusedError as error:
        raise invalid_field(_FIELDS.get(error.field or "", "receiver"), str(error)) from None
    except ValueError as error:
        raise invalid_field("receiver", f"{error}, or a UMA address, such as {_SENDER}") from None
    if found is None:
        raise invalid_field("receiver", "is not a customer of this platform")
    return found
