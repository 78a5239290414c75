"""Facts about one card transaction, past tense, append-only.

An event says by itself which money moved: `entries` needs nothing beside it. Where a field is
called `unfunded`, that part of `amount` concerns the receivable account: it was not covered by
what the funding account had paid.
Amounts are minor units of the card's currency.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class DeclineReason(StrEnum):
    """Why an authorization was refused."""

    INSUFFICIENT_FUNDS = "INSUFFICIENT_FUNDS"
    CARD_PAUSED = "CARD_PAUSED"
    CARD_NOT_ACTIVE = "CARD_NOT_ACTIVE"
    NO_ELIGIBLE_FUNDING_SOURCE = "NO_ELIGIBLE_FUNDING_SOURCE"
    SPEND_LIMIT_EXCEEDED = "SPEND_LIMIT_EXCEEDED"
    DECISION_TIMEOUT = "DECISION_TIMEOUT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorized:
    """The network asked for `amount` more and was told yes, or said yes in our stead."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """The network asked for `amount` and was told no; no money moved."""

    amount: int
    reason: DeclineReason


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationAdjusted:
    """The authorized total is `amount` now; `final` when nothing of it is left to clear."""

    amount: int
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationReversed:
    """`amount` of what was authorized is taken back; `final` when nothing is left to clear."""

    amount: int
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationExpired:
    """The authorization ended in time; `amount` of it had not cleared."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationCancelled:
    """The card was closed; `amount` of the authorization had not cleared."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """The funding account paid `amount` into the card holds."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullPending:
    """The funding account paid `amount` into the card holds; its confirmation is still out."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConfirmed:
    """A pending pull of `amount` is confirmed."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullFailed:
    """A pending pull of `amount` failed: the funding account has its money back and owes it."""

    amount: int
    unfunded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOpened:
    """The funding account could not pay `amount`: the pull stays open, no money moved."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResized:
    """The open pull now asks for `amount` instead: the shortfall changed."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRecovered:
    """The funding account paid the open pull.

    `unfunded` of it repays what the network took without cover; the rest becomes a hold.
    """

    amount: int
    unfunded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """`amount` went back from the card holds to the funding account."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """The network moved `amount`; `unfunded` of it was not covered by any pull.

    `final` says whether this clearing closed the card transaction.
    """

    amount: int
    unfunded: int
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearingReversed:
    """The network moved `amount` back; `unfunded` of it had never been covered."""

    amount: int
    unfunded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refunded:
    """The merchant gave `amount` back; `final` when there was no purchase to wait for."""

    amount: int
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Credited:
    """The network credited `amount` that belongs to no purchase."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundReversed:
    """The merchant took a refund of `amount` back; `unfunded` is all of it or nothing."""

    amount: int
    unfunded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DebitRecovered:
    """The funding account paid `amount` of refund reversals that it could not pay before."""

    amount: int


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
    | Credited
    | RefundReversed
    | DebitRecovered
)
