"""What a card transaction is asked to decide. Times and balances arrive inside.

Amounts are minor units of the card's currency.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from ledger.core.card import CardState
from ledger.core.events import DeclineReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorize:
    """The network asks whether `amount` more may be spent; the only command that can be refused."""

    amount: int
    balance: int  # Of the funding account, at this moment.
    owed: int  # What the account already owes for earlier exceptions.
    card_state: CardState
    account_usable: bool
    max_spend: int | None  # Per authorization; equal is allowed. None: no limit.
    forced_decline: DeclineReason | None  # What the sandbox's magic suffix asks for.
    decided_at: datetime
    decide_by: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear:
    """The network has moved `amount`; it cannot be refused.

    `final` is what the message says about more clearings to come; None when it is silent.
    `balance` is what a pull may take from the funding account now.
    """

    amount: int
    final: bool | None
    balance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recover:
    """Money arrived on the funding account: try the open pull again with `balance`."""

    balance: int


Command: TypeAlias = Authorize | Clear | Recover
