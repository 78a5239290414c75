"""Double entry: every event that moves money, as entries between two accounts.

An entry debits one account and credits another by the same amount, so it balances by construction.
A debit lowers an account whose normal balance is credit and raises one whose normal balance is
debit; a credit does the opposite.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from cardledger.ledger.core import events


class ChartAccount(StrEnum):
    """The chart of accounts.

    `CUSTOMER` is an internal account of a cardholder. The others are system accounts: a platform
    has one of each per currency.
    """

    CUSTOMER = "CUSTOMER"  # Liability, normal balance credit: customer funds.
    CARD_HOLDS = "CARD_HOLDS"  # Liability, credit: pulled for clearings to come.
    NETWORK_SETTLEMENT = "NETWORK_SETTLEMENT"  # Liability, credit: cleared, due to the network.
    RECEIVABLE = "RECEIVABLE"  # Asset, debit: cleared without funds, owed by cardholders.
    SANDBOX_FUNDING = "SANDBOX_FUNDING"  # Asset, debit: where deposits come from.
    OPERATOR_LOSS = "OPERATOR_LOSS"  # Expense, debit: written off, less what came back.
    TRANSFERS = "TRANSFERS"  # Liability, credit: in transit between two accounts of the ledger.
    SUSPENSE = "SUSPENSE"  # Liability, credit: moved by the network, not applied yet.
    OUTBOUND_CLEARING = "OUTBOUND_CLEARING"  # Liability, credit: debited, not paid out yet.
    INBOUND_CLEARING = "INBOUND_CLEARING"  # Liability, credit: arrived, not credited yet.
    FX = "FX"  # Liability, credit: bought and sold; a position in each currency.
    # No event posts to these yet.
    SETTLEMENT_BANK = "SETTLEMENT_BANK"  # Asset, debit: the bank account of settlement.
    INTERCHANGE = "INTERCHANGE"  # Income, credit: earned on cleared amounts.
    NETWORK_FEES = "NETWORK_FEES"  # Expense, debit: what the network charges.


@dataclass(frozen=True, slots=True)
class Entry:
    """`amount` > 0 minor units, debited to one account and credited to another."""

    debit: ChartAccount
    credit: ChartAccount
    amount: int


def entries(  # noqa: PLR0912, C901 - one branch an event
    event: events.Event,
) -> list[Entry]:
    """Return the entries of `event`; none when it moves no money."""
    match event:  # The most frequent events come first.
        case events.Authorized():
            return []
        case events.Pulled(amount=amount) | events.PullPending(amount=amount):
            return [Entry(ChartAccount.CUSTOMER, ChartAccount.CARD_HOLDS, amount)]
        case events.Cleared(amount=amount, unfunded=unfunded):
            return _moves(
                (ChartAccount.CARD_HOLDS, ChartAccount.NETWORK_SETTLEMENT, amount - unfunded),
                (ChartAccount.RECEIVABLE, ChartAccount.NETWORK_SETTLEMENT, unfunded),
            )
        case events.Released(amount=amount):
            return [Entry(ChartAccount.CARD_HOLDS, ChartAccount.CUSTOMER, amount)]
        case events.PullFailed(amount=amount, unfunded=unfunded):
            return _moves(
                (ChartAccount.CARD_HOLDS, ChartAccount.CUSTOMER, amount - unfunded),
                (ChartAccount.RECEIVABLE, ChartAccount.CUSTOMER, unfunded),
            )
        case events.PullRecovered(amount=amount, unfunded=unfunded):
            return _moves(
                (ChartAccount.CUSTOMER, ChartAccount.RECEIVABLE, unfunded),
                (ChartAccount.CUSTOMER, ChartAccount.CARD_HOLDS, amount - unfunded),
            )
        case events.DebitRecovered(amount=amount):
            return [Entry(ChartAccount.CUSTOMER, ChartAccount.RECEIVABLE, amount)]
        case events.WrittenOff(amount=amount):
            return [Entry(ChartAccount.OPERATOR_LOSS, ChartAccount.RECEIVABLE, amount)]
        case events.WriteOffReversed(amount=amount):
            return [Entry(ChartAccount.CARD_HOLDS, ChartAccount.OPERATOR_LOSS, amount)]
        case events.WriteOffRecovered(amount=amount):
            return [Entry(ChartAccount.CUSTOMER, ChartAccount.OPERATOR_LOSS, amount)]
        case events.ClearingReversed(amount=amount, unfunded=unfunded):
            return _moves(
                (ChartAccount.NETWORK_SETTLEMENT, ChartAccount.CARD_HOLDS, amount - unfunded),
                (ChartAccount.NETWORK_SETTLEMENT, ChartAccount.RECEIVABLE, unfunded),
            )
        case events.Refunded(amount=amount) | events.Credited(amount=amount):
            return [Entry(ChartAccount.NETWORK_SETTLEMENT, ChartAccount.CUSTOMER, amount)]
        case events.RefundReversed(amount=amount, unfunded=unfunded):
            return _moves(
                (ChartAccount.CUSTOMER, ChartAccount.NETWORK_SETTLEMENT, amount - unfunded),
                (ChartAccount.RECEIVABLE, ChartAccount.NETWORK_SETTLEMENT, unfunded),
            )
        case (
            events.Declined()
            | events.AuthorizationAdjusted()
            | events.AuthorizationReversed()
            | events.AuthorizationExpired()
            | events.AuthorizationCancelled()
            | events.CreditAuthorized()
            | events.CreditDeclined()
            | events.CreditAdjusted()
            | events.PullConfirmed()
            | events.PullOpened()
            | events.PullResized()
        ):
            return []
        case _:
            assert_never(event)


def deposit_entry(amount: int) -> Entry:
    """Return the entry of a deposit to a customer's account in the sandbox."""
    return Entry(debit=ChartAccount.SANDBOX_FUNDING, credit=ChartAccount.CUSTOMER, amount=amount)


def transfer_entries(amount: int) -> tuple[Entry, Entry]:
    """Return the entries of a transfer: out of the source account, into the destination account.

    Two entries, because an entry has at most one customer account; the transfers account between
    them is zero afterwards.
    """
    return (
        Entry(debit=ChartAccount.CUSTOMER, credit=ChartAccount.TRANSFERS, amount=amount),
        Entry(debit=ChartAccount.TRANSFERS, credit=ChartAccount.CUSTOMER, amount=amount),
    )


def _moves(*movements: tuple[ChartAccount, ChartAccount, int]) -> list[Entry]:
    return [Entry(*movement) for movement in movements if movement[2]]
