"""The events of one card transaction, each with its explanation."""

from typing import Annotated, Literal

from cardledger.schema.wire.cards.card_transactions import ConversionResource
from cardledger.schema.wire.common import (
    CurrencyAmount,
    Documented,
    PageLimit,
    PageQuery,
    Response,
    Time,
)

EventKind = Literal[
    "AUTHORIZED",
    "DECLINED",
    "AUTHORIZATION_ADJUSTED",
    "AUTHORIZATION_REVERSED",
    "AUTHORIZATION_EXPIRED",
    "AUTHORIZATION_CANCELLED",
    "PULLED",
    "PULL_PENDING",
    "PULL_CONFIRMED",
    "PULL_FAILED",
    "PULL_OPENED",
    "PULL_RESIZED",
    "PULL_RECOVERED",
    "RELEASED",
    "CLEARED",
    "CLEARING_REVERSED",
    "REFUNDED",
    "REFUND_REVERSED",
    "CREDIT_AUTHORIZED",
    "CREDIT_DECLINED",
    "CREDIT_ADJUSTED",
    "CREDITED",
    "DEBIT_RECOVERED",
    "WRITTEN_OFF",
    "WRITE_OFF_REVERSED",
    "WRITE_OFF_RECOVERED",
]
LedgerAccount = Literal[
    "CUSTOMER",
    "CARD_HOLDS",
    "NETWORK_SETTLEMENT",
    "RECEIVABLE",
    "SANDBOX_FUNDING",
    "OPERATOR_LOSS",
    "TRANSFERS",
    "OUTBOUND_CLEARING",
    "INBOUND_CLEARING",
    "FX",
    "SETTLEMENT_BANK",
    "SUSPENSE",
    "INTERCHANGE",
    "NETWORK_FEES",
]


class Change(Response):
    """A figure of the card transaction before and after an event."""

    field: str
    before: int | str | None = None
    after: int | str | None = None


class EntryResource(Response):
    """A balanced entry: one amount, a debit account and a credit account."""

    debit: Annotated[str, Documented(LedgerAccount)]
    credit: Annotated[str, Documented(LedgerAccount)]
    amount: CurrencyAmount


class EventResource(Response):
    """One event of a card transaction, with its entries and a sentence that explains it.

    `source` and `reference` identify the network message that caused the event; they are absent
    when a timer caused it.
    """

    sequence: int
    type: Annotated[str, Documented(EventKind)]
    amount: CurrencyAmount
    explanation: str
    changes: list[Change]
    entries: list[EntryResource]
    source: str | None = None
    reference: str | None = None
    conversion: ConversionResource | None = None
    occurred_at: Time
    recorded_at: Time


class EventsQuery(PageQuery):
    """The page of the events of a card transaction: nearly all have fewer than a page holds."""

    limit: PageLimit = 100
