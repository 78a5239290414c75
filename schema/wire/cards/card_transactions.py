"""The card transaction of responses, webhooks and outcomes."""

from typing import Annotated, Literal

from cardledger.schema.ids import Id
from cardledger.schema.wire.common import (
    CardId,
    CardTransactionId,
    CurrencyAmount,
    CustomerId,
    Documented,
    InternalAccountId,
    Response,
    Time,
)

CardTransactionStatus = Literal[
    "AUTHORIZED",
    "PARTIALLY_SETTLED",
    "SETTLED",
    "REFUNDED",
    "EXCEPTION",
    "DECLINED",
    "VOIDED",
]
StatusReason = Literal["REVERSED", "EXPIRED", "CARD_CLOSED"]
DeclineReason = Literal[
    "INSUFFICIENT_FUNDS",
    "CARD_PAUSED",
    "CARD_NOT_ACTIVE",
    "NO_ELIGIBLE_FUNDING_SOURCE",
    "SPEND_LIMIT_EXCEEDED",
    "DECISION_TIMEOUT",
]


class PullSummary(Response):
    """Pulls: debits of the funding account."""

    count: int
    total_amount: int
    pending_count: int


class Summary(Response):
    """The number of movements and their total amount."""

    count: int
    total_amount: int


class MerchantResource(Response):
    """The merchant at which the card was used."""

    descriptor: str
    mcc: str | None = None
    country: str | None = None


class ConversionResource(Response):
    """How the network converted an amount; `rate` is an exact decimal.

    `billingAmount` is what was authorized, cleared or refunded by that message.
    """

    merchant_amount: CurrencyAmount
    billing_amount: CurrencyAmount
    rate: str


class CardTransactionResource(Response):
    """One purchase: its pulls, clearings and refunds rolled up."""

    type: Literal["CARD"] = "CARD"
    id: CardTransactionId
    card_id: CardId
    customer_id: CustomerId
    platform_customer_id: str | None = None
    account_id: InternalAccountId
    issuer_transaction_token: str
    status: Annotated[str, Documented(CardTransactionStatus)]
    status_reason: Annotated[str, Documented(StatusReason)] | None = None
    decline_reason: Annotated[str, Documented(DeclineReason)] | None = None
    direction: Literal["DEBIT", "CREDIT"] = "DEBIT"
    merchant: MerchantResource
    authorized_amount: CurrencyAmount
    settled_amount: CurrencyAmount | None = None
    refunded_amount: CurrencyAmount | None = None
    conversion: ConversionResource | None = None
    held_amount: CurrencyAmount
    owed_amount: CurrencyAmount
    written_off_amount: CurrencyAmount | None = None
    pull_summary: PullSummary
    settlement_summary: Summary
    refund_summary: Summary
    release_summary: Summary
    sequence: int
    authorized_at: Time
    expires_at: Time | None = None
    last_event_at: Time | None = None
    created_at: Time
    updated_at: Time


def id_of(resource: CardTransactionResource) -> Id:
    """Return the UUID of `resource`."""
    key: Id = resource.id
    return key
