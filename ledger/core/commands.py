"""What a card transaction is asked to decide. Times and balances arrive inside.

Amounts are minor units of the card's currency. `balance` is what may be taken from the funding
account at this moment.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from cardledger.ledger.core.card import CardState
from cardledger.ledger.core.events import DeclineReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorize:
    """The network asks whether `amount` more may be spent; the only command that can be refused.

    An increment is the same question again. `clears`: the message also moves the money.
    `issuer_decline` is what the issuer's processor has decided before us: its fraud score, its
    velocity limits, a card that it has blocked itself.
    """

    amount: int
    balance: int
    owed: int  # What the account already owes for earlier exceptions.
    card_state: CardState
    account_usable: bool
    max_spend: int | None  # Per authorization; equal is allowed. None: no limit.
    issuer_decline: DeclineReason | None
    decided_at: datetime
    decide_by: datetime | None
    confirms_later: bool = False  # The funding rail confirms the pull some time afterwards.
    clears: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """The network has approved `amount` more in our stead."""

    amount: int
    balance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advise:
    """The network says that the authorized total is `total` now."""

    total: int
    balance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverse:
    """The network takes `amount` of the authorization back; None: all that has not cleared."""

    amount: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """The authorization has come to its end; what has not cleared goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """The card is closed; what has not cleared goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear:
    """The network has moved `amount`; it cannot be refused.

    `final` is what the message says about more clearings to come; None when it is silent.
    """

    amount: int
    final: bool | None
    balance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseClearing:
    """The network has moved `amount` of the clearings back."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """The merchant has given `amount` back."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseRefund:
    """The merchant has taken `amount` of the refunds back."""

    amount: int
    balance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmPull:
    """A pending pull of `amount` is confirmed, or its confirmation says that it failed."""

    amount: int
    succeeded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recover:
    """Money arrived on the funding account: try what it still has to pay again."""

    balance: int


Command: TypeAlias = (
    Authorize
    | StandIn
    | Advise
    | Reverse
    | Expire
    | Cancel
    | Clear
    | ReverseClearing
    | Refund
    | ReverseRefund
    | ConfirmPull
    | Recover
)
