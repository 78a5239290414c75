"""Double entries: every fact that moves money, as balanced movements between accounts.

"Debit" gives and "credit" gets. One entry names both sides, so it balances by construction.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from cardledger.ledger.core import events


class Account(StrEnum):
    """The chart of accounts.

    `CUSTOMER` is the cardholder's funding account; the others are the platform's, one of each
    per currency.
    """

    CUSTOMER = "CUSTOMER"
    CARD_HOLDS = "CARD_HOLDS"
    NETWORK_SETTLEMENT = "NETWORK_SETTLEMENT"
    RECEIVABLE = "RECEIVABLE"
    SANDBOX_FUNDING = "SANDBOX_FUNDING"
    OPERATOR_LOSS = "OPERATOR_LOSS"
    TRANSFERS = "TRANSFERS"


@dataclass(frozen=True, slots=True)
class Entry:
    """`amount` > 0 minor units move from `debit` to `credit`."""

    debit: Account
    credit: Account
    amount: int


def entries(event: events.Event) -> list[Entry]:  # noqa: C901 - one branch an event
    """Return the movements of `event`; none for a fact that moves no money.

    The most frequent come first.
    """
    match event:
        case events.Authorized():
            return []
        case events.Pulled(amount=amount) | events.PullPending(amount=amount):
            return [Entry(Account.CUSTOMER, Account.CARD_HOLDS, amount)]
        case events.Cleared(amount=amount, unfunded=unfunded):
            return _moves(
                (Account.CARD_HOLDS, Account.NETWORK_SETTLEMENT, amount - unfunded),
                (Account.RECEIVABLE, Account.NETWORK_SETTLEMENT, unfunded),
            )
        case events.Released(amount=amount):
            return [Entry(Account.CARD_HOLDS, Account.CUSTOMER, amount)]
        case events.PullFailed(amount=amount, unfunded=unfunded):
            return _moves(
                (Account.CARD_HOLDS, Account.CUSTOMER, amount - unfunded),
                (Account.RECEIVABLE, Account.CUSTOMER, unfunded),
            )
        case events.PullRecovered(amount=amount, unfunded=unfunded):
            return _moves(
                (Account.CUSTOMER, Account.RECEIVABLE, unfunded),
                (Account.CUSTOMER, Account.CARD_HOLDS, amount - unfunded),
            )
        case events.DebitRecovered(amount=amount):
            return [Entry(Account.CUSTOMER, Account.RECEIVABLE, amount)]
        case events.ClearingReversed(amount=amount, unfunded=unfunded):
            return _moves(
                (Account.NETWORK_SETTLEMENT, Account.CARD_HOLDS, amount - unfunded),
                (Account.NETWORK_SETTLEMENT, Account.RECEIVABLE, unfunded),
            )
        case events.Refunded(amount=amount) | events.Credited(amount=amount):
            return [Entry(Account.NETWORK_SETTLEMENT, Account.CUSTOMER, amount)]
        case events.RefundReversed(amount=amount, unfunded=unfunded):
            return _moves(
                (Account.CUSTOMER, Account.NETWORK_SETTLEMENT, amount - unfunded),
                (Account.RECEIVABLE, Account.NETWORK_SETTLEMENT, unfunded),
            )
        case (
            events.Declined()
            | events.AuthorizationAdjusted()
            | events.AuthorizationReversed()
            | events.AuthorizationExpired()
            | events.AuthorizationCancelled()
            | events.PullConfirmed()
            | events.PullOpened()
            | events.PullResized()
        ):
            return []
        case _:
            assert_never(event)


def deposit_entry(amount: int) -> Entry:
    """Return the movement of money that arrives on a customer's account in the sandbox."""
    return Entry(debit=Account.SANDBOX_FUNDING, credit=Account.CUSTOMER, amount=amount)


def transfer_entries(amount: int) -> tuple[Entry, Entry]:
    """Return the movements of a transfer: out of the source's account, into the destination's.

    Two, so that each has one customer's account in it; between them the money is nowhere, and
    what the account in the middle keeps of it is always zero.
    """
    return (
        Entry(debit=Account.CUSTOMER, credit=Account.TRANSFERS, amount=amount),
        Entry(debit=Account.TRANSFERS, credit=Account.CUSTOMER, amount=amount),
    )


def _moves(*movements: tuple[Account, Account, int]) -> list[Entry]:
    return [Entry(*movement) for movement in movements if movement[2]]
