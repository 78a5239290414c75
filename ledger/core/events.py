"""Facts about one card transaction, past tense, append-only.

An event says by itself which money moved: `entries` needs nothing beside it.
Amounts are minor units of the card's currency.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class DeclineReason(StrEnum):
    """Why an authorization was refused, in the order in which the checks run."""

    INSUFFICIENT_FUNDS = "INSUFFICIENT_FUNDS"
    CARD_PAUSED = "CARD_PAUSED"
    CARD_NOT_ACTIVE = "CARD_NOT_ACTIVE"
    NO_ELIGIBLE_FUNDING_SOURCE = "NO_ELIGIBLE_FUNDING_SOURCE"
    SPEND_LIMIT_EXCEEDED = "SPEND_LIMIT_EXCEEDED"
    DECISION_TIMEOUT = "DECISION_TIMEOUT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorized:
    """The network asked for `amount` more and was told yes."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """The network asked for `amount` and was told no; no money moved."""

    amount: int
    reason: DeclineReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """The funding account paid `amount` into the card holds."""

    amount: int


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


Event: TypeAlias = (
    Authorized | Declined | Pulled | PullOpened | PullResized | PullRecovered | Released | Cleared
)
