"""Events of one card transaction: past tense, append-only.

An event alone determines its entries. `unfunded` is the part of `amount` that pulls did not cover:
it is posted to the receivable account. Amounts are minor units of the card's currency.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class DeclineReason(StrEnum):
    """Why an authorization was declined."""

    INSUFFICIENT_FUNDS = "INSUFFICIENT_FUNDS"
    CARD_PAUSED = "CARD_PAUSED"
    CARD_NOT_ACTIVE = "CARD_NOT_ACTIVE"
    NO_ELIGIBLE_FUNDING_SOURCE = "NO_ELIGIBLE_FUNDING_SOURCE"
    SPEND_LIMIT_EXCEEDED = "SPEND_LIMIT_EXCEEDED"
    DECISION_TIMEOUT = "DECISION_TIMEOUT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorized:
    """`amount` more was approved, by the ledger or by the network on the issuer's behalf."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """An authorization of `amount` was declined; no money moved."""

    amount: int
    reason: DeclineReason


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationAdjusted:
    """The authorized total is now `amount`; `final` when nothing of it is left to clear."""

    amount: int
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationReversed:
    """`amount` of the authorization was reversed; `final` when nothing is left to clear.

    Of a card transaction that a clearing had closed only a timeout reversal reverses anything. Then
    `final` says that another clearing keeps it closed; else its rest is expected to clear again.
    """

    amount: int
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationExpired:
    """The authorization expired; `amount` of it had not cleared."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationCancelled:
    """The card was closed; `amount` of the authorization had not cleared."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """`amount` was pulled from the funding account into the card holds."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullPending:
    """`amount` was pulled into the card holds; the pull is not confirmed yet."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConfirmed:
    """A pending pull of `amount` was confirmed."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullFailed:
    """A pending pull of `amount` failed: it was returned to the funding account, which owes it."""

    amount: int
    unfunded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOpened:
    """The funding account could not cover a pull of `amount`: it stays open, no money moved."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResized:
    """The open pull is now `amount`: the shortfall changed."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRecovered:
    """The open pull was paid from the funding account.

    `unfunded` of it repays the receivable; the rest becomes a hold.
    """

    amount: int
    unfunded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """`amount` was released from the card holds to the funding account."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """`amount` cleared; `unfunded` of it was not covered by a pull.

    `final`: this clearing closed the card transaction.
    """

    amount: int
    unfunded: int
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearingReversed:
    """`amount` of the clearings was reversed; `unfunded` of it had not been covered.

    `final` when it leaves nothing of an open card transaction, neither authorized nor settled.
    """

    amount: int
    unfunded: int
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refunded:
    """The merchant refunded `amount`; `final` when no purchase is expected to clear."""

    amount: int
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditAuthorized:
    """A credit of `amount` more was authorized; the network has not moved it yet."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditDeclined:
    """The authorization of a credit of `amount` was declined."""

    amount: int
    reason: DeclineReason


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditAdjusted:
    """The authorized total of the credit is now `amount`; `final` when nothing of it is to come."""

    amount: int
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Credited:
    """The network credited `amount` that belongs to no purchase; `final`: no more is expected."""

    amount: int
    final: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundReversed:
    """A refund of `amount` was reversed; `unfunded` is all of it or nothing.

    `final` when it leaves nothing of an open credit, neither authorized nor credited.
    """

    amount: int
    unfunded: int
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DebitRecovered:
    """`amount` of unpaid refund reversals was paid from the funding account."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenOff:
    """The operator gave up `amount` of what was owed: it is not collected any more.

    `unfunded` of it was of clearings, and so of the open pull; the rest was of refund reversals.
    """

    amount: int
    unfunded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOffReversed:
    """`amount` that was written off came back with a reversed clearing, from the card holds."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOffRecovered:
    """`amount` that was written off was collected from money that the customer had just got back.

    `unfunded` of it was of clearings, so that it counts as pulled; the rest of refund reversals.
    """

    amount: int
    unfunded: int


Event: TypeAlias = (
    Authorized
    | Declined
    | AuthorizationAdjusted
    | AuthorizationReversed
    | AuthorizationExpired
    | AuthorizationCancelled
    | Pulled
    | PullPending
    | PullConfirmed
    | PullFailed
    | PullOpened
    | PullResized
    | PullRecovered
    | Released
    | Cleared
    | ClearingReversed
    | Refunded
    | CreditAuthorized
    | CreditDeclined
    | CreditAdjusted
    | Credited
    | RefundReversed
    | DebitRecovered
    | WrittenOff
    | WriteOffReversed
    | WriteOffRecovered
)
