"""Commands: what a card transaction has to decide. Times and balances are fields.

Amounts are minor units of the card's currency. `balance` is what a pull may take from the funding
account now.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from cardledger.ledger.core.card import CardState
from cardledger.ledger.core.events import DeclineReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorize:
    """The network requests approval of `amount` more; the only command that can be declined.

    An increment is another such request. `clears`: the message also moves the money.
    `issuer_decline` is a decision of the issuer's processor before the ledger's own checks: its
    fraud score, its velocity limits, a card that it has blocked.
    """

    amount: int
    balance: int
    owed: int  # By the account, for earlier exceptions.
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
    """The network has approved `amount` more on the issuer's behalf."""

    amount: int
    balance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advise:
    """The network reports that the authorized total is now `total`."""

    total: int
    balance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverse:
    """The network reverses `amount` of the authorization; None: all that has not cleared."""

    amount: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBack:
    """An approval could not be reported in time: its authorization counts as declined.

    `authorized` of it is still a part of the total. The rest is of a financial authorization:
    `cleared` has not been given back, and `reopens` says that no other clearing has closed the
    card transaction, so that what it had closed is expected again; of a card that `is_closed`,
    nothing is.
    """

    authorized: int
    cleared: int = 0
    reopens: bool = False
    is_closed: bool = False
    balance: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """The authorization has expired; what has not cleared is released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """The card is closed; what has not cleared is released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear:
    """The network has moved `amount`; a clearing cannot be declined.

    `final` is the message's own indicator that no clearing follows; None when it has none.
    """

    amount: int
    final: bool | None
    balance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseClearing:
    """The network has reversed `amount` of the clearings; only of a credit it needs a `balance`."""

    amount: int
    balance: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """The merchant has refunded `amount`."""

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizeCredit:
    """The network requests approval of a credit of `amount` more; it can be declined.

    Neither funds nor limits are checked: nothing is taken from the account.
    """

    amount: int
    card_state: CardState
    account_usable: bool
    issuer_decline: DeclineReason | None
    decided_at: datetime
    decide_by: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseCredit:
    """The network reports that the authorized total of the credit is now `total`."""

    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleCredit:
    """The network has moved `amount` of a credit; `final` as in `Clear`."""

    amount: int
    final: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """The network has credited `amount`: a cash deposit or a push payment.

    For a known purchase it is a refund.
    """

    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseRefund:
    """The merchant has reversed `amount` of the refunds."""

    amount: int
    balance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmPull:
    """A pending pull of `amount` was confirmed, or failed."""

    amount: int
    succeeded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recover:
    """The funding account was credited: retry the open pull and unpaid debits."""

    balance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOff:
    """The operator gives up `amount` > 0 of what is owed: at most `write_off_limit`."""

    amount: int


Command: TypeAlias = (
    Authorize
    | StandIn
    | Advise
    | Reverse
    | TakeBack
    | Expire
    | Cancel
    | Clear
    | ReverseClearing
    | Refund
    | AuthorizeCredit
    | AdviseCredit
    | SettleCredit
    | Credit
    | ReverseRefund
    | ConfirmPull
    | Recover
    | WriteOff
)
