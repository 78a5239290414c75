"""The rule of transfers: all or nothing, between two usable accounts."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.core.entries import ChartAccount, transfer_entries
from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.core.payments.transfer import (
    DECIDED_BY_THE_LEDGER,
    FailureReason,
    Funds,
    refusal,
)

RICH = Funds(is_usable=True, balance=1_000, held=0, owed=0)
POOR = Funds(is_usable=True, balance=0, held=0, owed=0)
UNUSABLE = Funds(is_usable=False, balance=1_000, held=0, owed=0)

# Few values, so that they meet at the edges.
SOME = st.sampled_from([0, 1, 2, 99, 100, 2**62, MAX_AMOUNT - 1, MAX_AMOUNT])
ANY = SOME | st.integers(0, MAX_AMOUNT)


@st.composite
def funds(draw: st.DrawFn) -> Funds:
    """Return an account whose balance and held amount fit the range of a `bigint`."""
    balance = draw(ANY)
    return Funds(
        is_usable=draw(st.booleans()),
        balance=balance,
        held=draw(st.sampled_from([0, 1]) | st.integers(0, MAX_AMOUNT))
        % (MAX_AMOUNT - balance + 1),
        owed=draw(ANY),
    )


def moved(amount: int, source: Funds, destination: Funds) -> tuple[Funds, Funds]:
    """Return both accounts after a transfer was decided and, unless it was refused, posted."""
    if refusal(amount, source, destination):
        return source, destination
    out, into = transfer_entries(amount)
    assert (out.debit, into.credit) == (ChartAccount.CUSTOMER, ChartAccount.CUSTOMER)
    return (
        replace(source, balance=source.balance - out.amount),
        replace(destination, balance=destination.balance + into.amount),
    )


def test_the_whole_balance_can_be_transferred() -> None:
    assert moved(1_000, RICH, POOR) == (
        replace(RICH, balance=0),
        replace(POOR, balance=1_000),
    )


def test_more_than_the_balance_is_refused() -> None:
    assert refusal(1_001, RICH, POOR) is FailureReason.INSUFFICIENT_FUNDS


def test_the_owed_amount_cannot_be_transferred() -> None:
    in_debt = replace(RICH, owed=300)

    assert refusal(700, in_debt, POOR) is None
    assert refusal(701, in_debt, POOR) is FailureReason.INSUFFICIENT_FUNDS


def test_an_account_that_owes_more_than_its_balance_moves_nothing() -> None:
    assert refusal(1, replace(RICH, owed=2_000), POOR) is FailureReason.INSUFFICIENT_FUNDS


def test_an_unusable_source_comes_before_every_other_reason() -> None:
    assert refusal(5_000, UNUSABLE, UNUSABLE) is FailureReason.ACCOUNT_INVALID


def test_an_unusable_destination_comes_before_a_lack_of_funds() -> None:
    assert refusal(5_000, RICH, UNUSABLE) is FailureReason.ACCOUNT_CANNOT_RECEIVE


def test_a_destination_at_the_limit_of_its_balance_cannot_receive() -> None:
    full = replace(POOR, balance=MAX_AMOUNT - 1_000, held=1)

    assert refusal(999, RICH, full) is None
    assert refusal(1_000, RICH, full) is FailureReason.ACCOUNT_CANNOT_RECEIVE


@given(st.integers(1, MAX_AMOUNT), funds(), funds())
def test_a_transfer_neither_makes_nor_loses_money(
    amount: int, source: Funds, destination: Funds
) -> None:
    after_source, after_destination = moved(amount, source, destination)

    total = source.balance + destination.balance
    assert after_source.balance + after_destination.balance == total


@given(st.integers(1, MAX_AMOUNT), funds(), funds())
def test_no_account_ends_below_zero_or_above_what_the_books_hold(
    amount: int, source: Funds, destination: Funds
) -> None:
    for account in moved(amount, source, destination):
        assert account.balance >= 0
        assert account.balance + account.held <= MAX_AMOUNT


@given(st.integers(1, MAX_AMOUNT), funds(), funds())
def test_a_refusal_has_a_reason_of_the_ledger_and_changes_nothing(
    amount: int, source: Funds, destination: Funds
) -> None:
    reason = refusal(amount, source, destination)

    if reason:
        assert reason in DECIDED_BY_THE_LEDGER
        assert moved(amount, source, destination) == (source, destination)
    else:
        assert source.is_usable
        assert destination.is_usable
        assert amount <= source.balance - source.owed


@given(st.integers(1, MAX_AMOUNT), funds(), funds())
def test_a_smaller_amount_moves_whenever_a_larger_one_does(
    amount: int, source: Funds, destination: Funds
) -> None:
    if refusal(amount, source, destination) is None:
        assert refusal(max(amount // 2, 1), source, destination) is None


@given(st.integers(1, MAX_AMOUNT))
def test_the_clearing_account_of_transfers_stays_at_zero(amount: int) -> None:
    kept: Counter[ChartAccount] = Counter()
    for entry in transfer_entries(amount):
        kept[entry.debit] -= entry.amount
        kept[entry.credit] += entry.amount

    assert not any(kept.values())
