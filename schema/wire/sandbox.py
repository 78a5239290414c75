"""Requests of the sandbox simulators."""

from typing import Annotated

from pydantic import Field

from cardledger.schema.wire.cards.card_transactions import DeclineReason
from cardledger.schema.wire.common import (
    Amount,
    CardTransactionId,
    Currency,
    CurrencyAmount,
    Documented,
    Merchant,
    Name,
    NonNegativeAmount,
    Request,
    Response,
)


class CurrencyCode(Request):
    """A currency; only `code` has an effect, the other fields may be echoed from a response."""

    code: Currency
    name: Name | None = None
    symbol: Annotated[str, Field(strict=True, max_length=16)] | None = None
    decimals: Annotated[int, Field(strict=True, ge=0, le=18)] | None = None


class SimulateAuthorization(Request):
    """The network requests an authorization of `amount` at `merchant`.

    The last three characters of `merchant.descriptor` may select a decline. In another currency
    than the card's, `billingAmount` is what the network bills for it, in the card's currency;
    without it, the exchange rate of the platform decides.
    """

    amount: Amount
    currency: CurrencyCode
    merchant: Merchant
    billing_amount: Amount | None = None


class SimulateClearing(Request):
    """The network clears `amount`; with `final`, no further clearing follows.

    An amount of 0 clears nothing: the authorization expires. `merchantAmount` is what the merchant
    cleared, of a purchase in another currency: `amount` may come from another rate than before.
    """

    card_transaction_id: CardTransactionId
    amount: NonNegativeAmount
    merchant_amount: Amount | None = None
    final: Annotated[bool, Field(strict=True)] | None = None


class SimulateReturn(Request):
    """The merchant refunds `amount`: at most what has settled and is not refunded yet.

    `merchantAmount` is what the merchant refunded, of a purchase in another currency.
    """

    card_transaction_id: CardTransactionId
    amount: Amount
    merchant_amount: Amount | None = None


class SimulateOnParent(Request):
    """A message about a card transaction, without an amount."""

    card_transaction_id: CardTransactionId


class SimulateReversal(Request):
    """The merchant reverses `amount` of the authorization; without `amount`, all of it."""

    card_transaction_id: CardTransactionId
    amount: Amount | None = None


class SimulateAdvice(Request):
    """The authorized total becomes `amount`."""

    card_transaction_id: CardTransactionId
    amount: Amount


class SimulateInquiry(Request):
    """A merchant checks the card without requesting an amount."""

    merchant: Merchant


class InquiryResource(Response):
    """The result of a balance inquiry, which is not recorded.

    `availableBalance` is the amount that an authorization is decided on: the balance of the first
    funding source less the amount that the account owes, never below zero.
    """

    issuer_transaction_token: str
    approved: bool
    decline_reason: Annotated[str, Documented(DeclineReason)] | None = None
    available_balance: CurrencyAmount
