"""The books: every fact that moves money as balanced movements, and what they add up to."""

import pytest

from cardledger.ledger.core import events
from cardledger.ledger.core.entries import ChartAccount, Entry, deposit_entry, entries


def moved(debit: ChartAccount, credit: ChartAccount, amount: int) -> Entry:
    return Entry(debit=debit, credit=credit, amount=amount)


def test_a_pull_moves_from_the_customer_to_the_card_holds() -> None:
    assert entries(events.Pulled(amount=5)) == [
        moved(ChartAccount.CUSTOMER, ChartAccount.CARD_HOLDS, 5)
    ]


def test_a_release_moves_money_from_card_holds_to_the_customer() -> None:
    assert entries(events.Released(amount=5)) == [
        moved(ChartAccount.CARD_HOLDS, ChartAccount.CUSTOMER, 5)
    ]


def test_a_clearing_moves_its_funded_part_from_the_holds_and_the_rest_from_the_receivable() -> None:
    assert entries(events.Cleared(amount=5, unfunded=2, final=True)) == [
        moved(ChartAccount.CARD_HOLDS, ChartAccount.NETWORK_SETTLEMENT, 3),
        moved(ChartAccount.RECEIVABLE, ChartAccount.NETWORK_SETTLEMENT, 2),
    ]


def test_a_funded_clearing_leaves_the_receivable_alone() -> None:
    assert entries(events.Cleared(amount=5, unfunded=0, final=True)) == [
        moved(ChartAccount.CARD_HOLDS, ChartAccount.NETWORK_SETTLEMENT, 5)
    ]


def test_an_unfunded_clearing_leaves_the_holds_alone() -> None:
    assert entries(events.Cleared(amount=5, unfunded=5, final=True)) == [
        moved(ChartAccount.RECEIVABLE, ChartAccount.NETWORK_SETTLEMENT, 5)
    ]


def test_a_recovery_repays_the_receivable_first() -> None:
    assert entries(events.PullRecovered(amount=5, unfunded=4)) == [
        moved(ChartAccount.CUSTOMER, ChartAccount.RECEIVABLE, 4),
        moved(ChartAccount.CUSTOMER, ChartAccount.CARD_HOLDS, 1),
    ]


def test_a_deposit_debits_sandbox_funding_and_credits_the_customer() -> None:
    assert deposit_entry(5) == moved(ChartAccount.SANDBOX_FUNDING, ChartAccount.CUSTOMER, 5)


def test_a_pending_pull_has_the_entries_of_a_confirmed_pull() -> None:
    assert entries(events.PullPending(amount=5)) == entries(events.Pulled(amount=5))


def test_a_failed_pull_gives_back_what_is_held_and_what_was_taken_becomes_a_receivable() -> None:
    assert entries(events.PullFailed(amount=5, unfunded=2)) == [
        moved(ChartAccount.CARD_HOLDS, ChartAccount.CUSTOMER, 3),
        moved(ChartAccount.RECEIVABLE, ChartAccount.CUSTOMER, 2),
    ]


def test_a_clearing_reversal_fills_the_holds_and_forgives_the_receivable() -> None:
    assert entries(events.ClearingReversed(amount=5, unfunded=2)) == [
        moved(ChartAccount.NETWORK_SETTLEMENT, ChartAccount.CARD_HOLDS, 3),
        moved(ChartAccount.NETWORK_SETTLEMENT, ChartAccount.RECEIVABLE, 2),
    ]


def test_a_refund_moves_from_the_network_to_the_customer() -> None:
    assert entries(events.Refunded(amount=5, final=False)) == [
        moved(ChartAccount.NETWORK_SETTLEMENT, ChartAccount.CUSTOMER, 5)
    ]


def test_a_refund_reversal_is_paid_by_the_customer_or_the_receivable() -> None:
    assert entries(events.RefundReversed(amount=5, unfunded=0)) == [
        moved(ChartAccount.CUSTOMER, ChartAccount.NETWORK_SETTLEMENT, 5)
    ]
    assert entries(events.RefundReversed(amount=5, unfunded=5)) == [
        moved(ChartAccount.RECEIVABLE, ChartAccount.NETWORK_SETTLEMENT, 5)
    ]


def test_a_recovered_debit_repays_the_receivable() -> None:
    assert entries(events.DebitRecovered(amount=5)) == [
        moved(ChartAccount.CUSTOMER, ChartAccount.RECEIVABLE, 5)
    ]


def test_a_write_off_is_a_loss_instead_of_a_receivable() -> None:
    assert entries(events.WrittenOff(amount=5, unfunded=2)) == [
        moved(ChartAccount.OPERATOR_LOSS, ChartAccount.RECEIVABLE, 5)
    ]


def test_what_comes_back_of_a_write_off_reduces_the_loss() -> None:
    assert entries(events.WriteOffReversed(amount=5)) == [
        moved(ChartAccount.CARD_HOLDS, ChartAccount.OPERATOR_LOSS, 5)
    ]
    assert entries(events.WriteOffRecovered(amount=5, unfunded=2)) == [
        moved(ChartAccount.CUSTOMER, ChartAccount.OPERATOR_LOSS, 5)
    ]


@pytest.mark.parametrize(
    "event",
    [
        events.Authorized(amount=5),
        events.Declined(amount=5, reason=events.DeclineReason.CARD_PAUSED),
        events.AuthorizationAdjusted(amount=5, final=True),
        events.AuthorizationReversed(amount=5, final=True),
        events.AuthorizationExpired(amount=5),
        events.AuthorizationCancelled(amount=5),
        events.PullConfirmed(amount=5),
        events.PullOpened(amount=5),
        events.PullResized(amount=5),
    ],
)
def test_facts_that_move_no_money_have_no_entries(event: events.Event) -> None:
    assert entries(event) == []
