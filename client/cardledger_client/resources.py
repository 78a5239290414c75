"""What the ledger returns, in the words of its interface.

A newer server may send more fields than are listed here: they are kept in resources, and ignored in
outcomes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

Event = Mapping[str, Any]
"""A network event as JSON; docs/network-events.md of cardledger lists types and fields."""

Lane = Literal["LIVE", "BULK"]
"""`LIVE` is for events whose network waits, `BULK` for files."""


class Currency(TypedDict):
    """A currency; `decimals` says how many minor units it has."""

    code: str
    name: str
    symbol: str
    decimals: int


class CurrencyAmount(TypedDict):
    """An amount in minor units of a currency."""

    amount: int
    currency: Currency


class Merchant(TypedDict):
    """Where a card was used."""

    descriptor: str
    mcc: NotRequired[str]
    country: NotRequired[str]


class Movements(TypedDict):
    """How many movements of one kind there were, and their total in minor units."""

    count: int
    totalAmount: int


class Pulls(Movements):
    """The debits of the funding account; `pendingCount` of them are not confirmed yet."""

    pendingCount: int


class Conversion(TypedDict):
    """How the network converted an amount; `rate` is an exact decimal."""

    merchantAmount: CurrencyAmount
    billingAmount: CurrencyAmount
    rate: str


class CardTransaction(TypedDict):
    """One purchase: what all its events add up to."""

    type: str
    id: str
    cardId: str
    customerId: str
    platformCustomerId: NotRequired[str]
    accountId: str
    issuerTransactionToken: str
    status: str
    statusReason: NotRequired[str]
    declineReason: NotRequired[str]
    direction: str
    merchant: Merchant
    authorizedAmount: CurrencyAmount
    settledAmount: NotRequired[CurrencyAmount]
    refundedAmount: NotRequired[CurrencyAmount]
    conversion: NotRequired[Conversion]
    heldAmount: CurrencyAmount
    owedAmount: CurrencyAmount
    writtenOffAmount: NotRequired[CurrencyAmount]
    pullSummary: Pulls
    settlementSummary: Movements
    refundSummary: Movements
    releaseSummary: Movements
    sequence: int
    authorizedAt: str
    expiresAt: NotRequired[str]
    lastEventAt: NotRequired[str]
    createdAt: str
    updatedAt: str


class Card(TypedDict):
    """A card; its account numbers are not part of it."""

    id: str
    cardholderId: str
    platformCardId: str
    state: str
    stateReason: str | None
    brand: NotRequired[str]
    form: str
    last4: NotRequired[str]
    expMonth: NotRequired[int]
    expYear: NotRequired[int]
    fundingSources: list[str]
    maxSpendPerTransaction: int | None
    currency: str
    createdAt: str
    updatedAt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one event: `APPLIED`, `DECLINED`, `DUPLICATE`, `REJECTED`, ….

    `card_transaction` is the card transaction as the event left it. `DECIDE_BY_PASSED` replaces an
    approval that is read after its `decideBy`.
    """

    outcome: str
    reference: str | None = None
    reason: str | None = None
    detail: str | None = None
    first_outcome: str | None = None
    card_transaction: CardTransaction | None = None

    @property
    def result(self) -> str:
        """What became of the event: of a duplicate, the outcome of its first submission."""
        return self.first_outcome or self.outcome

    @property
    def is_approval(self) -> bool:
        """Whether it says that an authorization is approved, now or by an earlier submission."""
        return self.result == "APPLIED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """How many events were accepted, and how many were malformed and kept as rejections."""

    accepted: int
    rejected: int
