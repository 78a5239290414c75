"""The card transaction as every reader sees it: responses, webhooks, outcomes."""

from typing import Literal

from cardledger.schema.ids import Id
from cardledger.schema.wire.common import (
    CardId,
    CardTransactionId,
    CurrencyAmount,
    CustomerId,
    InternalAccountId,
    Response,
    Time,
)


class PullSummary(Response):
    """Debits of the funding account: opened, paid (gross), still pending."""

    count: int
    total_amount: int
    pending_count: int


class Summary(Response):
    """How many and how much, in minor units."""

    count: int
    total_amount: int


class MerchantResource(Response):
    """Where the card was used."""

    descriptor: str
    mcc: str | None = None
    country: str | None = None


class CardTransactionResource(Response):
    """One purchase, with its pulls, clearings and refunds rolled up."""

    type: Literal["CARD"] = "CARD"
    id: CardTransactionId
    card_id: CardId
    customer_id: CustomerId
    platform_customer_id: str | None = None
    account_id: InternalAccountId
    issuer_transaction_token: str
    status: str
    status_reason: str | None = None
    decline_reason: str | None = None
    direction: Literal["DEBIT", "CREDIT"] = "DEBIT"
    merchant: MerchantResource
    authorized_amount: CurrencyAmount
    settled_amount: CurrencyAmount | None = None
    refunded_amount: CurrencyAmount | None = None
    credited_amount: CurrencyAmount | None = None
    held_amount: CurrencyAmount
    owed_amount: CurrencyAmount
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
    """Return the key behind the public id."""
    key: Id = resource.id
    return key
