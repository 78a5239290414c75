"""Write-offs, example by example: what each event does after one. Then what holds for all."""

from collections import Counter

import pytest
from hypothesis import event as seen
from hypothesis import given

from cardledger.ledger.core import commands, events
from cardledger.ledger.core.card_transaction import (
    UNKNOWN,
    CardTransaction,
    decide,
    fold,
    write_off_limit,
)
from cardledger.ledger.core.commands import ReverseClearing, WriteOff
from cardledger.ledger.core.entries import ChartAccount, entries
from cardledger.ledger.core.status import Status
from cardledger.ledger.testing.strategies import Story, arbitrary, written_off
from tests.books import InMemoryLedger, after, authorize, clear, facts_of

# 100 cleared, nothing of it paid.
UNPAID = (clear(100, final=True, balance=0),)
# 100 cleared and refunded, the customer has spent the refund, and it was reversed.
KEPT = (
    authorize(100),
    clear(100),
    commands.Refund(amount=100),
    commands.ReverseRefund(amount=100, balance=0),
)
# 60 of an authorization of 100 cleared; the pull of 100 is open.
PARTLY = (commands.StandIn(amount=100, balance=0), clear(60, final=False, balance=0))


def refund(amount: int) -> commands.Refund:
    return commands.Refund(amount=amount)


def figures(state: CardTransaction) -> tuple[int, int, int, int]:
    """Return what is held, owed, due by the open pull, and written off."""
    return state.held, state.owed, state.open_pull, state.written_off


def booked(*history: commands.Command) -> dict[str, int]:
    """Return the balances of a card transaction's entries by account, credits less debits."""
    state, balances = UNKNOWN, Counter[str]()
    for command in history:
        decision = decide(state, command)
        state = decision.after
        for fact in decision.facts:
            for entry in entries(fact):
                balances[entry.debit] -= entry.amount
                balances[entry.credit] += entry.amount
    return {account: balance for account, balance in balances.items() if balance}


# --- the write-off itself -----------------------------------------------------------------------


def test_what_is_owed_can_be_written_off_and_ends_the_exception() -> None:
    unpaid = after(*UNPAID)

    decided = facts_of(unpaid, WriteOff(amount=100))

    assert decided == [events.WrittenOff(amount=100, unfunded=100)]
    state = fold(decided, unpaid)
    assert figures(state) == (0, 0, 0, 100)
    assert (state.status, state.in_debt) == (Status.SETTLED, False)
    assert booked(*UNPAID, WriteOff(amount=100)) == {
        ChartAccount.NETWORK_SETTLEMENT: 100,
        ChartAccount.OPERATOR_LOSS: -100,
    }


def test_the_rest_stays_due_and_only_the_rest_is_collected() -> None:
    state = after(*UNPAID, WriteOff(amount=60))

    assert figures(state) == (0, 40, 40, 60)
    assert state.status is Status.EXCEPTION
    assert facts_of(state, commands.Recover(balance=39)) == []
    assert facts_of(state, commands.Recover(balance=500)) == [
        events.PullRecovered(amount=40, unfunded=40)
    ]


@pytest.mark.parametrize("history", [UNPAID, KEPT, PARTLY])
def test_more_than_is_owed_is_not_decided(history: tuple[commands.Command, ...]) -> None:
    state = after(*history)
    limit = write_off_limit(state)

    assert facts_of(state, WriteOff(amount=limit + 1)) == []
    assert facts_of(state, WriteOff(amount=0)) == []
    assert facts_of(state, WriteOff(amount=limit)) != []
    assert write_off_limit(after(*history, WriteOff(amount=limit))) == 0


def test_nothing_is_owed_by_a_card_transaction_without_events_or_with_a_hold() -> None:
    assert write_off_limit(UNKNOWN) == 0
    assert facts_of(UNKNOWN, WriteOff(amount=1)) == []
    assert write_off_limit(after(authorize(100))) == 0


def test_only_what_has_cleared_can_be_written_off_of_an_open_authorization() -> None:
    state = after(*PARTLY, WriteOff(amount=60))

    assert write_off_limit(after(*PARTLY)) == 60
    assert figures(state) == (0, 0, 40, 60)
    assert facts_of(state, commands.Recover(balance=40)) == [
        events.PullRecovered(amount=40, unfunded=0)
    ]
    assert after(*PARTLY, WriteOff(amount=60), commands.Recover(balance=40)).held == 40


def test_refund_reversals_are_written_off_before_clearings() -> None:
    both = (*UNPAID, refund(70), commands.ReverseRefund(amount=50, balance=0))

    decided = facts_of(after(*both), WriteOff(amount=70))

    assert decided == [events.WrittenOff(amount=70, unfunded=20)]
    state = fold(decided, after(*both))
    assert (state.unpaid, state.open_pull, state.debits_written_off) == (0, 80, 50)


# --- what happens afterwards --------------------------------------------------------------------


def test_a_second_clearing_is_pulled_as_if_nothing_had_been_written_off() -> None:
    state = after(*UNPAID, WriteOff(amount=100))

    assert facts_of(state, clear(30, final=True, balance=30)) == [
        events.Pulled(amount=30),
        events.Cleared(amount=30, unfunded=0, final=True),
    ]
    assert figures(after(*UNPAID, WriteOff(amount=100), clear(30, balance=0))) == (0, 30, 30, 100)


def test_a_reversed_clearing_makes_good_the_loss_and_gives_the_customer_nothing() -> None:
    history = (*UNPAID, WriteOff(amount=100))

    decided = facts_of(after(*history), ReverseClearing(amount=100))

    assert decided == [
        events.ClearingReversed(amount=100, unfunded=0),
        events.WriteOffReversed(amount=100),
    ]
    assert booked(*history, ReverseClearing(amount=100)) == {}


def test_a_reversed_clearing_cancels_what_is_owed_then_the_loss_then_pays_the_customer() -> None:
    # 20 was paid, 50 is written off, 30 is owed.
    history = (
        authorize(20),
        clear(100, final=True, balance=0),
        WriteOff(amount=50),
    )

    assert figures(after(*history)) == (0, 30, 30, 50)
    assert figures(after(*history, ReverseClearing(amount=30))) == (0, 0, 0, 50)
    assert figures(after(*history, ReverseClearing(amount=70))) == (0, 0, 0, 10)
    assert facts_of(after(*history), ReverseClearing(amount=100)) == [
        events.ClearingReversed(amount=100, unfunded=30),
        events.WriteOffReversed(amount=50),
        events.PullResized(amount=0),
        events.Released(amount=20),
    ]
    assert booked(*history, ReverseClearing(amount=100)) == {}


def test_clearing_reversals_in_parts_give_what_one_gives() -> None:
    history = (authorize(20), clear(100, final=True, balance=0), WriteOff(amount=80))
    parts = [ReverseClearing(amount=amount) for amount in (30, 50, 20)]

    assert figures(after(*history, *parts[:1])) == (0, 0, 0, 50)
    assert booked(*history, *parts) == booked(*history, ReverseClearing(amount=100)) == {}


def test_a_refund_makes_good_the_loss_and_only_the_rest_is_the_customers() -> None:
    history = (authorize(40), clear(100, final=True, balance=0), WriteOff(amount=60))

    decided = facts_of(after(*history), refund(100))

    assert decided == [
        events.Refunded(amount=100, final=False),
        events.WriteOffRecovered(amount=60, unfunded=60),
    ]
    state = fold(decided, after(*history))
    assert (state.status, state.written_off, state.pulled) == (Status.REFUNDED, 0, 100)
    assert booked(*history, refund(100)) == {}
    assert after(*history, refund(50)).written_off == 10


def test_a_credit_of_the_same_purchase_makes_good_the_loss_like_a_refund() -> None:
    state = after(*UNPAID, WriteOff(amount=100))

    assert facts_of(state, commands.Credit(amount=70))[1:] == [
        events.WriteOffRecovered(amount=70, unfunded=70)
    ]


def test_a_reversed_refund_is_due_again_and_can_be_written_off_again() -> None:
    history = (*UNPAID, WriteOff(amount=100), refund(100))

    state = after(*history, commands.ReverseRefund(amount=100, balance=0))

    assert figures(state) == (0, 100, 0, 0)
    assert after(
        *history, commands.ReverseRefund(amount=100, balance=0), WriteOff(amount=100)
    ).written_off == 100  # fmt: skip


def test_a_kept_refund_that_is_written_off_comes_back_with_the_next_refund() -> None:
    state = after(*KEPT, WriteOff(amount=100))

    assert (state.debits_written_off, state.owed, state.status) == (100, 0, Status.SETTLED)
    assert facts_of(state, refund(30)) == [
        events.Refunded(amount=30, final=False),
        events.WriteOffRecovered(amount=30, unfunded=0),
    ]


def test_a_kept_refund_that_is_written_off_comes_back_with_the_clearing() -> None:
    state = after(*KEPT, WriteOff(amount=100))

    assert facts_of(state, ReverseClearing(amount=100)) == [
        events.ClearingReversed(amount=100, unfunded=0),
        events.Released(amount=100),
        events.WriteOffRecovered(amount=100, unfunded=0),
    ]
    # The customer paid 100 and has it back, by the refund.
    assert booked(*KEPT, WriteOff(amount=100), ReverseClearing(amount=100)) == {}


def test_a_reversed_clearing_makes_good_clearings_first_then_kept_refunds() -> None:
    # 80 of 100 was paid, then 50 refunded, spent and reversed: 70 is owed, and written off.
    history = (
        authorize(80),
        clear(100, final=True, balance=0),
        refund(50),
        commands.ReverseRefund(amount=50, balance=0),
        WriteOff(amount=70),
    )

    assert facts_of(after(*history), ReverseClearing(amount=60)) == [
        events.ClearingReversed(amount=60, unfunded=0),
        events.WriteOffReversed(amount=20),
        events.Released(amount=40),
        events.WriteOffRecovered(amount=40, unfunded=0),
    ]
    assert booked(*history, ReverseClearing(amount=100)) == {}


def test_a_hold_that_an_open_authorization_needs_is_pulled_again_after_it_made_good_a_loss() -> (
    None
):
    history = (
        authorize(100),
        clear(100, final=False),
        refund(100),
        commands.ReverseRefund(amount=100, balance=0),
        WriteOff(amount=100),
    )

    assert facts_of(after(*history), ReverseClearing(amount=100)) == [
        events.ClearingReversed(amount=100, unfunded=0),
        events.Released(amount=100),
        events.WriteOffRecovered(amount=100, unfunded=0),
        events.PullOpened(amount=100),
    ]


def test_an_expiry_releases_the_hold_that_the_customer_has_paid() -> None:
    history = (*PARTLY, WriteOff(amount=60), commands.Recover(balance=40))

    assert facts_of(after(*history), commands.Expire()) == [
        events.AuthorizationExpired(amount=40),
        events.Released(amount=40),
    ]
    assert after(*history, commands.Expire()).written_off == 60


def test_an_adjusted_or_reversed_authorization_needs_no_funds_for_what_is_written_off() -> None:
    state = after(*PARTLY, WriteOff(amount=60))

    assert facts_of(state, commands.Advise(total=80, balance=50)) == [
        events.AuthorizationAdjusted(amount=80, final=False),
        events.PullResized(amount=20),
    ]
    assert facts_of(state, commands.Reverse(amount=None)) == [
        events.AuthorizationReversed(amount=40, final=True),
        events.PullResized(amount=0),
    ]
    assert facts_of(state, authorize(30, balance=69))[1:] == []
    assert facts_of(state, authorize(30, balance=70))[1:] == [
        events.PullResized(amount=70),
        events.PullRecovered(amount=70, unfunded=0),
    ]


def test_a_pending_pull_that_fails_later_leaves_the_written_off_part_alone() -> None:
    history = (
        authorize(40, confirms_later=True),
        clear(100, final=True, balance=0),
        WriteOff(amount=60),
    )

    confirmed = after(*history, commands.ConfirmPull(amount=40, succeeded=True))
    failed = after(*history, commands.ConfirmPull(amount=40, succeeded=False))

    assert figures(confirmed) == (0, 0, 0, 60)
    assert figures(failed) == (0, 40, 40, 60)
    assert facts_of(failed, WriteOff(amount=40)) == [events.WrittenOff(amount=40, unfunded=40)]


# --- what holds for every history ---------------------------------------------------------------


def back_from_the_network(event: events.Event) -> int:
    """Return what `event` brings back that the customer could get."""
    match event:
        case events.ClearingReversed(amount=amount, unfunded=unfunded):
            return amount - unfunded
        case events.Refunded(amount=amount) | events.Credited(amount=amount):
            return amount
    return 0


@given(arbitrary(write_offs=True) | written_off())
def test_what_comes_back_makes_good_the_whole_loss_before_the_customer_gets_any(
    story: Story,
) -> None:
    books = InMemoryLedger()
    for event in story:
        before = {name: (state, len(books.histories[name])) for name, state in books.states.items()}
        books.submit(event)
        for name, (state, length) in before.items():
            facts = books.histories[name][length:]
            back = sum(map(back_from_the_network, facts))
            given_up = sum(fact.amount for fact in facts if isinstance(fact, events.WrittenOff))
            seen(f"back {back > 0}, written off {state.written_off > 0}")
            if len([fact for fact in facts if back_from_the_network(fact)]) < 2:
                assert books.states[name].written_off == (
                    state.written_off - min(back, state.written_off) + given_up
                )
            assert given_up <= state.owed


@given(written_off())
def test_a_write_off_gives_the_customer_no_money(story: Story) -> None:
    books = InMemoryLedger()
    for event in story:
        balance, owed, lost = books.balance(), books.owed(), books.written_off()
        word = books.submit(event)
        if event["type"] == "WRITE_OFF" and word == "APPLIED":
            assert books.written_off() == lost + event["amount"]
            assert books.balance() <= balance
            assert books.owed() <= owed - event["amount"]
