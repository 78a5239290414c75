"""What the sandbox is asked to simulate."""

from typing import Annotated

from pydantic import Field

from cardledger.schema.wire.common import (
    Amount,
    CardTransactionId,
    Currency,
    CurrencyAmount,
    Merchant,
    Name,
    NonNegativeAmount,
    Request,
    Response,
)


class CurrencyCode(Request):
    """A currency as requests name it: the code counts, the rest may be echoed."""

    code: Currency
    name: Name | None = None
    symbol: Annotated[str, Field(strict=True, max_length=16)] | None = None
    decimals: Annotated[int, Field(strict=True, ge=0, le=18)] | None = None


class SimulateAuthorization(Request):
    """The network asks whether `amount` may be spent at `merchant`.

    The last three characters of `merchant.descriptor` may ask for a refusal.
    """

    amount: Amount
    currency: CurrencyCode
    merchant: Merchant


class SimulateClearing(Request):
    """The network has moved `amount`; `final` says that no further clearing follows.

    An amount of 0 clears nothing: the authorization expires.
    """

    card_transaction_id: CardTransactionId
    amount: NonNegativeAmount
    final: Annotated[bool, Field(strict=True)] | None = None


class SimulateReturn(Request):
    """The merchant gives `amount` back; at most what has settled and was not given back yet."""

    card_transaction_id: CardTransactionId
    amount: Amount


class SimulateOnParent(Request):
    """A message about a card transaction that needs no amount."""

    card_transaction_id: CardTransactionId


class SimulateReversal(Request):
    """The merchant takes `amount` of the authorization back; without an amount, all of it."""

    card_transaction_id: CardTransactionId
    amount: Amount | None = None


class SimulateAdvice(Request):
    """The authorized total is `amount` from now on."""

    card_transaction_id: CardTransactionId
    amount: Amount


class SimulateInquiry(Request):
    """A merchant asks whether the card is good, without asking for money."""

    merchant: Merchant


class InquiryResource(Response):
    """The answer to a balance inquiry, of which nothing is recorded.

    `availableBalance` is what an authorization would be judged on: the balance of the first
    funding source less what that account owes, and never below zero.
    """

    issuer_transaction_token: str
    approved: bool
    decline_reason: str | None = None
    available_balance: CurrencyAmount
