"""Amounts of simulated network events, also of purchases in another currency than the card's."""

from typing import Any

from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.api.http.request_context import PlatformContext
from cardledger.ledger.cards import conversions, inquiries
from cardledger.ledger.exchange.rates import Pair
from cardledger.ledger.messaging.inbox import CardRoute
from cardledger.schema.wire.common import CURRENCIES
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.sandbox import SimulateAuthorization


async def billed(
    call: PlatformContext, card: CardRoute, body: SimulateAuthorization
) -> dict[str, Any]:
    """Return the amount that is billed in the currency of the card, and its conversion, if any."""
    currency, code = card.currency, body.currency.code
    if code == currency:
        if body.billing_amount is not None:
            raise invalid_field("billingAmount", f"must be absent: amount is in {currency}")
        return {"amount": body.amount, "currency": currency}
    if code not in CURRENCIES:
        raise _wrong_currency(currency)
    try:
        if body.billing_amount is not None:
            found = conversions.stated(
                body.billing_amount, currency, of=body.amount, merchant_currency=code
            )
        else:
            found = await _by_table(call, body.amount, Pair(code, currency))
    except conversions.NotConvertibleError as error:
        raise invalid_field("amount", str(error), Code.AMOUNT_OUT_OF_RANGE) from None
    return {"amount": found.amount, "currency": currency, "conversion": found.wire()}


async def _by_table(call: PlatformContext, amount: int, pair: Pair) -> conversions.Billed:
    async with call.reading() as connection:
        found = await conversions.by_table(
            connection,
            amount=amount,
            pair=pair,
            platform_id=call.platform_id,
            pricing=call.services.pricing,
            at=call.now(),
        )
    if found is None:
        raise _wrong_currency(pair.destination)
    return found


def later(
    card: inquiries.Spending, parent: inquiries.Parent, amount: int, merchant_amount: int | None
) -> dict[str, Any]:
    """Return the amount of a later message, and its conversion, if it has one."""
    if merchant_amount is None:
        return {"amount": amount}
    if parent.merchant_currency is None:
        raise invalid_field("merchantAmount", f"must be absent: the purchase is in {card.currency}")
    try:
        found = conversions.stated(
            amount, card.currency, of=merchant_amount, merchant_currency=parent.merchant_currency
        )
    except conversions.NotConvertibleError as error:
        raise invalid_field("merchantAmount", str(error)) from None
    return {"amount": amount, "conversion": found.wire()}


def _wrong_currency(currency: str) -> ApiError:
    message = f"must be {currency}, the currency of the card, or one with a rate to it"
    return invalid_field("currency.code", message, Code.INVALID_CURRENCY)
