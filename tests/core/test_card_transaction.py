"""The life of one card transaction, example by example."""

from dataclasses import fields

import pytest

from cardledger.ledger.core import commands, events
from cardledger.ledger.core.card_transaction import UNKNOWN, CardTransaction, fold, waits
from cardledger.ledger.core.money import MAX_AMOUNT, AmountOutOfRangeError
from cardledger.ledger.core.status import Closure, Status
from tests.books import after, authorize, clear, facts_of

DECLINED = events.DeclineReason.INSUFFICIENT_FUNDS


# --- examples -----------------------------------------------------------------------------------


def test_an_authorization_pulls_the_amount_that_it_holds() -> None:
    decided = facts_of(UNKNOWN, authorize(1250))

    assert decided == [events.Authorized(amount=1250), events.Pulled(amount=1250)]


def test_a_tip_above_the_authorization_pulls_the_difference_before_it_clears() -> None:
    authorized = after(authorize(1250))

    decided = facts_of(authorized, clear(1500))

    assert decided == [
        events.Pulled(amount=250),
        events.Cleared(amount=1500, unfunded=0, final=True),
    ]
    assert fold(decided, authorized).status is Status.SETTLED


def test_a_clearing_below_the_authorization_leaves_the_rest_on_hold() -> None:
    shipped = after(authorize(9000), clear(4000))

    assert (shipped.status, shipped.held) == (Status.PARTIALLY_SETTLED, 5000)


def test_a_final_clearing_below_the_authorization_releases_the_rest() -> None:
    decided = facts_of(after(authorize(9000), clear(4000)), clear(3000, final=True))

    assert decided == [
        events.Cleared(amount=3000, unfunded=0, final=True),
        events.Released(amount=2000),
    ]


def test_a_surplus_of_one_unit_is_released() -> None:
    assert after(authorize(100), clear(99, final=True)).released == 1


def test_a_clearing_after_the_final_one_is_pulled_afresh() -> None:
    closed = after(authorize(9000), clear(4000, final=True))

    decided = facts_of(closed, clear(5000))

    assert decided == [
        events.Pulled(amount=5000),
        events.Cleared(amount=5000, unfunded=0, final=True),
    ]


def test_a_clearing_that_is_said_not_to_be_final_leaves_the_card_transaction_open() -> None:
    state = after(authorize(1000), clear(1000, final=False))

    assert state.status is Status.PARTIALLY_SETTLED
    assert not state.closed


def test_an_authorization_that_follows_its_clearing_pulls_nothing_more() -> None:
    decided = facts_of(after(clear(2400)), authorize(2400))

    assert decided == [events.Authorized(amount=2400)]


def test_an_authorization_that_follows_its_clearing_needs_no_funds() -> None:
    decided = facts_of(after(clear(2400)), authorize(2400, balance=0))

    assert decided == [events.Authorized(amount=2400)]


def test_a_clearing_that_the_account_cannot_pay_opens_a_pull_and_is_owed() -> None:
    authorized = after(authorize(48_000))

    decided = facts_of(authorized, clear(55_000, balance=2000))

    assert decided == [
        events.PullOpened(amount=7000),
        events.Cleared(amount=55_000, unfunded=7000, final=True),
    ]
    state = fold(decided, authorized)
    assert (state.status, state.owed, state.pulled) == (Status.EXCEPTION, 7000, 48_000)


def test_a_shortfall_that_grows_resizes_the_one_open_pull() -> None:
    short = after(clear(100, balance=0))

    decided = facts_of(short, clear(50, balance=0))

    assert decided == [
        events.PullResized(amount=150),
        events.Cleared(amount=50, unfunded=50, final=True),
    ]
    assert fold(decided, short).pull_count == 1


def test_an_open_pull_is_paid_by_recovery_only_even_when_a_clearing_finds_money() -> None:
    decided = facts_of(after(clear(100, balance=0)), clear(50, balance=1_000))

    assert events.PullResized(amount=150) in decided


def test_an_open_pull_is_not_counted_twice_when_more_is_asked_for() -> None:
    short = after(clear(100, final=False, balance=0))  # These 100 are part of what is owed.

    declined = facts_of(short, authorize(200, balance=199, owed=100))
    approved = facts_of(short, authorize(200, balance=200, owed=100))

    assert declined == [events.Declined(amount=200, reason=DECLINED)]
    assert approved == [
        events.Authorized(amount=200),
        events.PullResized(amount=200),
        events.PullRecovered(amount=200, unfunded=100),
    ]


def test_an_increment_needs_what_is_due_for_the_hold_as_well() -> None:
    short = after(commands.StandIn(amount=500, balance=0))

    declined = facts_of(short, authorize(300, balance=799))
    approved = facts_of(short, authorize(300, balance=800))

    assert declined == [events.Declined(amount=300, reason=DECLINED)]
    assert approved == [
        events.Authorized(amount=300),
        events.PullResized(amount=800),
        events.PullRecovered(amount=800, unfunded=0),
    ]


def test_an_approval_that_adds_nothing_leaves_the_open_pull_of_its_clearing() -> None:
    short = after(clear(100, balance=0))

    assert facts_of(short, authorize(100, balance=100, owed=100)) == [events.Authorized(amount=100)]


def test_recovery_pays_an_open_pull_whole_or_not_at_all() -> None:
    short = after(clear(100, balance=40))

    assert facts_of(short, commands.Recover(balance=99)) == []
    assert facts_of(short, commands.Recover(balance=100)) == [
        events.PullRecovered(amount=100, unfunded=100)
    ]


def test_recovery_finds_nothing_to_do_where_nothing_is_open() -> None:
    assert facts_of(after(authorize(100)), commands.Recover(balance=1_000)) == []


def test_a_recovered_card_transaction_is_settled() -> None:
    state = after(clear(100, balance=0), commands.Recover(balance=100))

    assert (state.status, state.open_pull, state.owed) == (Status.SETTLED, 0, 0)


def test_a_declined_authorization_keeps_what_it_asked_for() -> None:
    state = after(authorize(501, balance=500))

    assert state.status is Status.DECLINED
    assert (state.authorized_amount, state.authorized) == (501, 0)
    assert state.decline_reason is DECLINED


def test_a_clearing_of_a_declined_authorization_is_a_force_post() -> None:
    state = after(authorize(501, balance=500), clear(501))

    assert (state.status, state.settled) == (Status.SETTLED, 501)


def test_an_approval_after_a_decline_forgets_the_decline() -> None:
    state = after(authorize(501, balance=500), authorize(400, balance=500))

    assert (state.status, state.authorized_amount) == (Status.AUTHORIZED, 400)
    assert (state.declined, state.decline_reason) == (0, None)


def test_a_declined_addition_leaves_what_was_approved() -> None:
    state = after(authorize(400), authorize(200, balance=100))

    assert (state.status, state.authorized_amount) == (Status.AUTHORIZED, 400)


def test_an_approved_addition_pulls_only_what_is_new() -> None:
    decided = facts_of(after(authorize(400)), authorize(200))

    assert decided == [events.Authorized(amount=200), events.Pulled(amount=200)]


def test_a_total_beyond_63_bits_is_refused_and_never_wraps() -> None:
    everything = after(authorize(MAX_AMOUNT, balance=MAX_AMOUNT))

    for command in (
        authorize(1, balance=MAX_AMOUNT),
        clear(MAX_AMOUNT, balance=MAX_AMOUNT),
    ):
        state = fold(facts_of(everything, clear(1, final=False, balance=0)), everything)
        with pytest.raises(AmountOutOfRangeError):
            facts_of(state, command)


def test_a_pull_that_could_never_be_paid_within_63_bits_is_not_opened() -> None:
    # What is pulled is counted gross: releases never lower it.
    released = after(authorize(MAX_AMOUNT, balance=MAX_AMOUNT), clear(1, final=True))

    with pytest.raises(AmountOutOfRangeError):
        facts_of(released, clear(1, balance=0))


# --- authorizations that change -----------------------------------------------------------------


def reverse(amount: int | None = None) -> commands.Reverse:
    return commands.Reverse(amount=amount)


def advise(total: int, balance: int = 50_000) -> commands.Advise:
    return commands.Advise(total=total, balance=balance)


def standing(state: CardTransaction) -> tuple[Status, str | None, int, int]:
    return state.status, state.status_reason, state.authorized, state.held


def test_a_stand_in_is_recorded_whatever_the_balance() -> None:
    decided = facts_of(UNKNOWN, commands.StandIn(amount=100, balance=99))

    assert decided == [events.Authorized(amount=100), events.PullOpened(amount=100)]
    assert fold(decided).status is Status.EXCEPTION
    assert fold(decided).owed == 0  # Nothing has been taken yet.
    paid = facts_of(UNKNOWN, commands.StandIn(amount=100, balance=100))
    assert paid == [events.Authorized(amount=100), events.Pulled(amount=100)]


def test_an_advice_below_the_authorization_releases_the_difference() -> None:
    decided = facts_of(after(authorize(7500)), advise(4800))

    assert decided == [
        events.AuthorizationAdjusted(amount=4800, final=False),
        events.Released(amount=2700),
    ]


def test_an_advice_above_the_authorization_pulls_the_difference_or_opens_a_pull() -> None:
    held = after(authorize(100))

    assert facts_of(held, advise(150, balance=50))[1:] == [events.Pulled(amount=50)]
    assert facts_of(held, advise(150, balance=49))[1:] == [events.PullOpened(amount=50)]


def test_an_advice_of_zero_voids_an_authorization() -> None:
    assert standing(after(authorize(7500), advise(0))) == (Status.VOIDED, "REVERSED", 0, 0)


def test_an_advice_of_what_has_settled_or_less_closes() -> None:
    shipped = after(authorize(100), clear(40))

    for total in (40, 39):
        state = after(authorize(100), clear(40), advise(total))
        assert (state.closed_by, state.authorized, state.held) == (Closure.REVERSED, total, 0)
    assert not fold(facts_of(shipped, advise(41)), shipped).closed


def test_a_reversal_gives_back_no_more_than_what_has_not_cleared() -> None:
    shipped = after(authorize(100), clear(40))

    assert facts_of(shipped, reverse(100)) == [
        events.AuthorizationReversed(amount=60, final=True),
        events.Released(amount=60),
    ]
    assert (
        facts_of(shipped, reverse(60))
        == facts_of(shipped, reverse())
        == facts_of(shipped, reverse(61))
    )


def test_a_partial_reversal_leaves_the_rest_open() -> None:
    state = after(authorize(100), reverse(99))

    assert standing(state) == (Status.AUTHORIZED, None, 1, 1)


def test_a_reversal_without_an_open_amount_changes_nothing() -> None:
    assert facts_of(after(authorize(100), reverse()), reverse()) == []
    assert facts_of(after(authorize(100), clear(100)), reverse(100)) == []
    assert facts_of(after(authorize(100), clear(100, final=False)), reverse(1)) == []
    assert facts_of(after(clear(50, final=True), authorize(100)), reverse()) == []


def test_what_was_reversed_or_expired_may_be_taken_again() -> None:
    for gone in (reverse(), commands.Expire(), advise(0)):
        state = after(authorize(100), gone, authorize(60))
        assert standing(state) == (Status.AUTHORIZED, None, 60, 60)
        assert (state.pulled, state.released, state.pull_count) == (160, 100, 2)


def test_what_has_cleared_finally_or_whose_card_is_closed_is_not_taken_again() -> None:
    cleared = after(authorize(100), clear(40, final=True), authorize(60))
    cancelled = after(authorize(100), commands.Cancel(), commands.StandIn(amount=60, balance=100))

    assert (cleared.status, cleared.held) == (Status.SETTLED, 0)
    assert (cancelled.closed_by, cancelled.held) == (Closure.CARD_CLOSED, 0)


def test_an_expiry_gives_back_what_has_not_cleared() -> None:
    shipped = after(authorize(100), clear(40))

    assert facts_of(shipped, commands.Expire()) == [
        events.AuthorizationExpired(amount=60),
        events.Released(amount=60),
    ]
    assert after(authorize(100), clear(40), commands.Expire()).status is Status.SETTLED
    void = after(authorize(100), commands.Expire())
    assert standing(void) == (Status.VOIDED, "EXPIRED", 0, 0)


def test_closing_the_card_gives_back_what_has_not_cleared() -> None:
    assert facts_of(after(authorize(100), clear(40)), commands.Cancel()) == [
        events.AuthorizationCancelled(amount=60),
        events.Released(amount=60),
    ]
    void = after(authorize(100), commands.Cancel())
    assert standing(void) == (Status.VOIDED, "CARD_CLOSED", 0, 0)


def test_what_is_closed_neither_expires_nor_is_cancelled() -> None:
    for closed in (after(authorize(100), clear(100)), after(authorize(100), reverse())):
        assert facts_of(closed, commands.Expire()) == facts_of(closed, commands.Cancel()) == []


def test_the_first_closure_is_reported_unless_a_clearing_follows() -> None:
    late = after(authorize(100), commands.Expire(), clear(100))

    assert (late.closed_by, late.status) == (Closure.CLEARED, Status.SETTLED)
    assert after(authorize(100), commands.Expire(), advise(0)).closed_by is Closure.REVERSED


def test_a_clearing_after_a_reversal_that_is_not_final_stays_closed() -> None:
    state = after(authorize(100), reverse(), clear(60, final=False))

    assert (state.closed_by, state.status, state.held) == (Closure.REVERSED, Status.SETTLED, 0)


# --- one message that authorizes and clears -----------------------------------------------------


def test_a_financial_authorization_pulls_and_clears_at_once() -> None:
    assert facts_of(UNKNOWN, authorize(100, clears=True, balance=100)) == [
        events.Authorized(amount=100),
        events.Pulled(amount=100),
        events.Cleared(amount=100, unfunded=0, final=True),
    ]


def test_a_financial_authorization_can_be_declined() -> None:
    assert facts_of(UNKNOWN, authorize(100, clears=True, balance=99)) == [
        events.Declined(amount=100, reason=DECLINED)
    ]


def test_a_second_financial_authorization_is_paid_or_declined_like_the_first() -> None:
    first = after(authorize(100, clears=True))

    assert facts_of(first, authorize(50, clears=True, balance=50)) == [
        events.Authorized(amount=50),
        events.Pulled(amount=50),
        events.Cleared(amount=50, unfunded=0, final=True),
    ]
    assert facts_of(first, authorize(50, clears=True, balance=49)) == [
        events.Declined(amount=50, reason=DECLINED)
    ]


def test_a_financial_authorization_pays_in_two_pulls_what_one_does_not_cover() -> None:
    taken = after(clear(100, final=False))  # Without an authorization.

    decided = facts_of(taken, authorize(150, clears=True, balance=150))

    assert [event for event in decided if isinstance(event, events.Pulled)] == [
        events.Pulled(amount=50),
        events.Pulled(amount=100),
    ]
    assert fold(decided, taken).owed == 0
    short = facts_of(taken, authorize(150, clears=True, balance=149))
    assert short == [events.Declined(amount=150, reason=DECLINED)]


def test_the_clearing_of_a_financial_authorization_ends_an_open_hold() -> None:
    state = after(authorize(100), authorize(50, clears=True))

    assert (state.status, state.settled, state.held, state.released) == (
        Status.SETTLED,
        50,
        0,
        100,
    )


# --- money that comes back ----------------------------------------------------------------------


def take_back(amount: int) -> commands.ReverseClearing:
    return commands.ReverseClearing(amount=amount)


def credit(amount: int) -> commands.Credit:
    return commands.Credit(amount=amount)


def refund(amount: int) -> commands.Refund:
    return commands.Refund(amount=amount)


def reverse_refund(amount: int, balance: int = 50_000) -> commands.ReverseRefund:
    return commands.ReverseRefund(amount=amount, balance=balance)


def test_a_clearing_reversal_releases_what_was_funded() -> None:
    decided = facts_of(after(authorize(100), clear(100)), take_back(40))

    assert decided == [
        events.ClearingReversed(amount=40, unfunded=0),
        events.Released(amount=40),
    ]


def test_a_clearing_reversal_of_an_open_card_transaction_holds_the_money_again() -> None:
    state = after(authorize(100), clear(40), take_back(40))

    assert standing(state) == (Status.AUTHORIZED, None, 100, 100)


def test_a_clearing_reversal_first_forgives_what_is_owed() -> None:
    short = after(authorize(100), clear(150, balance=0))

    assert facts_of(short, take_back(30)) == [
        events.ClearingReversed(amount=30, unfunded=30),
        events.PullResized(amount=20),
    ]
    assert facts_of(short, take_back(80)) == [
        events.ClearingReversed(amount=80, unfunded=50),
        events.PullResized(amount=0),
        events.Released(amount=30),
    ]


def test_a_clearing_that_is_taken_back_whole_is_a_reversal() -> None:
    state = after(authorize(100), clear(100), take_back(100))

    assert (state.status, state.status_reason) == (Status.VOIDED, "REVERSED")


def test_a_clearing_reversal_that_leaves_nothing_of_an_open_card_transaction_closes_it() -> None:
    """It stayed AUTHORIZED with 0.00: nothing was left to expire, or to cancel with its card."""
    part = clear(50, balance=80, final=False)

    some, all_ = after(part, take_back(30)), after(part, take_back(50))
    in_parts = after(part, take_back(30), take_back(20))

    assert (some.status, some.closed) == (Status.PARTIALLY_SETTLED, False)
    assert facts_of(after(part), take_back(50))[0] == events.ClearingReversed(
        amount=50, unfunded=0, final=True
    )
    for void in (all_, in_parts):
        assert standing(void)[:2] == (Status.VOIDED, Closure.REVERSED)
        assert (void.held, void.owed, void.stands) == (0, 0, False)


def test_what_a_clearing_reversal_closed_is_open_again_after_an_approval() -> None:
    void = clear(50, balance=80, final=False), take_back(50)

    assert standing(after(*void, authorize(20))) == (Status.AUTHORIZED, None, 20, 20)
    assert after(*void, clear(30, final=False)).status is Status.SETTLED


def test_a_refund_stays_refunded_when_the_clearing_is_taken_back() -> None:
    state = after(clear(50, balance=80, final=False), refund(20), take_back(50))

    assert (state.status, state.closed_by) == (Status.REFUNDED, Closure.REVERSED)


def test_a_refund_is_not_a_release() -> None:
    assert facts_of(after(authorize(100), clear(100)), refund(40)) == [
        events.Refunded(amount=40, final=False)
    ]


def test_a_refund_without_a_purchase_is_refunded_at_once() -> None:
    decided = facts_of(UNKNOWN, refund(40))

    assert decided == [events.Refunded(amount=40, final=True)]
    assert fold(decided).status is Status.REFUNDED


def test_a_credit_without_a_purchase_is_no_refund() -> None:
    decided = facts_of(UNKNOWN, credit(40))

    state = fold(decided)
    assert decided == [events.Credited(amount=40)]
    assert (state.status, state.credited, state.closed) == (Status.SETTLED, 40, True)


def test_a_credit_of_a_known_purchase_is_a_refund() -> None:
    decided = facts_of(after(authorize(100), clear(100)), credit(100))

    assert decided == [events.Refunded(amount=100, final=False)]
    assert after(authorize(100), clear(100), credit(100)).status is Status.REFUNDED


def test_a_credit_that_is_reversed_is_void() -> None:
    state = after(credit(40), commands.ReverseRefund(amount=40, balance=40))

    assert (state.status, state.status_reason, state.credited) == (Status.VOIDED, "REVERSED", 0)


def test_a_credit_before_a_purchase_does_not_change_the_purchase() -> None:
    assert after(credit(100), authorize(100)).held == 100
    assert after(credit(100), clear(100, final=False)).status is Status.PARTIALLY_SETTLED
    assert after(credit(100), clear(100)).status is Status.REFUNDED


def test_a_refund_before_its_purchase_does_not_change_the_purchase() -> None:
    state = after(refund(100), authorize(100), clear(100, final=False))

    assert (state.closed, state.status) == (False, Status.PARTIALLY_SETTLED)
    assert after(refund(100), authorize(100)).held == 100
    assert after(refund(100), clear(100)).status is Status.REFUNDED


def test_a_refund_of_less_is_still_settled_and_one_of_the_rest_is_refunded() -> None:
    assert after(authorize(100), clear(100), refund(99)).status is Status.SETTLED
    assert after(authorize(100), clear(100), refund(100)).status is Status.REFUNDED
    assert after(authorize(100), clear(50), refund(50)).status is Status.PARTIALLY_SETTLED


def test_a_refund_reversal_is_paid_whole_or_owed_whole() -> None:
    refunded = after(authorize(100), clear(100), refund(100))

    assert facts_of(refunded, reverse_refund(60, balance=60)) == [
        events.RefundReversed(amount=60, unfunded=0)
    ]
    unpaid = facts_of(refunded, reverse_refund(60, balance=59))
    assert unpaid == [events.RefundReversed(amount=60, unfunded=60)]
    state = fold(unpaid, refunded)
    assert (state.status, state.owed, state.refunded) == (Status.EXCEPTION, 60, 40)


def test_recovery_pays_unpaid_refund_reversals_first_and_skips_none() -> None:
    both = after(
        clear(100, balance=0),
        refund(70),
        reverse_refund(30, balance=0),
        reverse_refund(20, balance=0),
    )

    assert (both.unpaid, both.open_pull, both.owed) == (50, 100, 150)
    assert facts_of(both, commands.Recover(balance=49)) == []
    assert facts_of(both, commands.Recover(balance=149)) == [events.DebitRecovered(amount=50)]
    assert facts_of(both, commands.Recover(balance=150)) == [
        events.DebitRecovered(amount=50),
        events.PullRecovered(amount=100, unfunded=100),
    ]


def test_a_recovered_pull_of_an_open_card_transaction_becomes_a_hold() -> None:
    short = after(commands.StandIn(amount=100, balance=0), clear(30, balance=0))

    assert facts_of(short, commands.Recover(balance=100)) == [
        events.PullRecovered(amount=100, unfunded=30)
    ]
    state = fold(facts_of(short, commands.Recover(balance=100)), short)
    assert (state.held, state.status) == (70, Status.PARTIALLY_SETTLED)


# --- what has to wait ---------------------------------------------------------------------------


def test_what_changes_an_authorization_waits_until_one_is_known() -> None:
    for command in (reverse(), reverse(5), commands.Expire(), advise(5)):
        assert waits(UNKNOWN, command)
        assert waits(after(clear(5)), command)
        assert not waits(after(authorize(5)), command)
        assert not waits(after(authorize(5, balance=0)), command)
        assert not waits(after(commands.StandIn(amount=5, balance=0)), command)


def test_a_reversal_is_parked_until_its_amount_has_been_posted() -> None:
    settled = after(clear(5))
    refunded = after(refund(5))

    assert not waits(settled, take_back(5))
    assert waits(settled, take_back(6))
    assert not waits(refunded, reverse_refund(5))
    assert waits(refunded, reverse_refund(6))


def test_a_command_that_is_not_a_reversal_is_never_parked() -> None:
    for command in (
        authorize(5),
        clear(5),
        refund(5),
        commands.StandIn(amount=5, balance=0),
        commands.Cancel(),
        commands.Recover(balance=5),
        commands.ConfirmPull(amount=5, succeeded=True),
    ):
        assert not waits(UNKNOWN, command)


# --- pulls that are confirmed later -------------------------------------------------------------


def confirm(amount: int, *, succeeded: bool = True) -> commands.ConfirmPull:
    return commands.ConfirmPull(amount=amount, succeeded=succeeded)


slow = authorize(100, confirms_later=True)


def test_a_slow_pull_is_pending_and_counted_at_once() -> None:
    assert facts_of(UNKNOWN, slow) == [
        events.Authorized(amount=100),
        events.PullPending(amount=100),
    ]
    state = after(slow)
    assert (state.pending, state.pending_count, state.pull_count, state.pulled) == (100, 1, 1, 100)
    assert state.status is Status.AUTHORIZED


def test_a_confirmation_ends_a_pending_pull() -> None:
    assert facts_of(after(slow), confirm(100)) == [events.PullConfirmed(amount=100)]
    state = after(slow, confirm(100))
    assert (state.pending, state.pending_count, state.pulled) == (0, 0, 100)


def test_a_confirmation_without_a_pending_pull_changes_nothing() -> None:
    assert facts_of(after(authorize(100)), confirm(100)) == []
    assert facts_of(after(slow, confirm(100)), confirm(100, succeeded=False)) == []


def test_a_pull_that_fails_gives_its_money_back_and_stays_open() -> None:
    decided = facts_of(after(slow), confirm(100, succeeded=False))

    assert decided == [events.PullFailed(amount=100, unfunded=0)]
    state = fold(decided, after(slow))
    assert (state.pulled, state.open_pull, state.pull_count, state.held) == (0, 100, 1, 0)
    assert (state.pending, state.pending_count, state.status) == (0, 0, Status.EXCEPTION)


def test_a_pull_that_fails_after_a_clearing_is_owed() -> None:
    shipped = after(slow, clear(60, final=False))

    decided = facts_of(shipped, confirm(100, succeeded=False))

    assert decided == [events.PullFailed(amount=100, unfunded=60)]
    state = fold(decided, shipped)
    assert (state.owed, state.open_pull, state.held) == (60, 100, 0)
    assert facts_of(state, commands.Recover(balance=100)) == [
        events.PullRecovered(amount=100, unfunded=60)
    ]


def test_the_released_part_of_a_pending_pull_cannot_fail() -> None:
    some = after(slow, reverse(40))

    assert (some.pending, some.pending_count) == (60, 1)
    assert facts_of(some, confirm(100)) == [events.PullConfirmed(amount=60)]
    assert facts_of(some, confirm(100, succeeded=False)) == [
        events.PullFailed(amount=60, unfunded=0)
    ]
    none = after(slow, reverse(), confirm(100, succeeded=False))
    assert (none.open_pull, none.pending_count, none.status) == (0, 0, Status.VOIDED)
    assert (none.pulled, none.released) == (100, 100)


def test_two_slow_pulls_are_confirmed_one_by_one() -> None:
    two = after(slow, authorize(50, confirms_later=True), confirm(100, succeeded=False))

    assert (two.pending, two.pending_count, two.pull_count) == (50, 1, 2)
    assert (two.pulled, two.open_pull, two.held) == (50, 100, 50)


def test_a_pull_after_a_clearing_is_never_slow() -> None:
    decided = facts_of(after(slow), clear(150))

    assert events.Pulled(amount=50) in decided


# --- the range ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "command"),
    [
        ([authorize(MAX_AMOUNT, balance=MAX_AMOUNT)], commands.StandIn(amount=1, balance=1)),
        ([clear(MAX_AMOUNT, balance=0)], authorize(1, clears=True, balance=MAX_AMOUNT)),
        ([refund(MAX_AMOUNT)], refund(1)),
        (
            [refund(MAX_AMOUNT), reverse_refund(MAX_AMOUNT, balance=0), refund(1)],
            reverse_refund(1, balance=0),
        ),
        (
            [authorize(MAX_AMOUNT, balance=MAX_AMOUNT), reverse()],
            commands.StandIn(amount=1, balance=0),
        ),
    ],
)
def test_no_command_takes_a_total_beyond_63_bits(
    history: list[commands.Command], command: commands.Command
) -> None:
    state = after(*history)

    with pytest.raises(AmountOutOfRangeError):
        facts_of(state, command)


def test_the_largest_amount_goes_all_the_way() -> None:
    everything = authorize(MAX_AMOUNT, balance=MAX_AMOUNT)

    assert after(everything, advise(0)).released == MAX_AMOUNT
    assert after(everything, clear(MAX_AMOUNT)).settled == MAX_AMOUNT
    whole = clear(MAX_AMOUNT, balance=MAX_AMOUNT)
    assert after(whole, take_back(MAX_AMOUNT)).released == MAX_AMOUNT
    assert after(refund(MAX_AMOUNT), reverse_refund(MAX_AMOUNT, balance=0)).unpaid == MAX_AMOUNT
    assert after(clear(MAX_AMOUNT, balance=0)).open_pull == MAX_AMOUNT


# --- small print ------------------------------------------------------------------------------


def test_a_refusal_after_a_refund_and_a_refund_after_a_refusal_are_both_refunded() -> None:
    for state in (
        after(refund(40), authorize(1, balance=0)),
        after(authorize(1, balance=0), refund(40)),
    ):
        assert (state.status, state.refund_count, state.authorizations) == (Status.REFUNDED, 1, 1)
    assert after(refund(40), authorize(1, balance=0)).decline_reason is None


def test_every_authorization_is_counted_approved_or_not() -> None:
    state = after(authorize(5), authorize(5, balance=0), advise(3), commands.StandIn(
        amount=1, balance=1))  # fmt: skip

    assert state.authorizations == 4


def test_every_clearing_refund_and_release_is_counted() -> None:
    state = after(authorize(9), clear(1), clear(1), clear(1), refund(1), refund(1))

    assert (state.settlement_count, state.refund_count) == (3, 2)
    assert after(authorize(9), reverse(1), reverse(1)).release_count == 2


def test_an_account_that_owes_more_than_it_has_is_only_refused_what_needs_a_pull() -> None:
    cleared = after(clear(2400))

    assert facts_of(cleared, authorize(2400, balance=0, owed=1)) == [events.Authorized(amount=2400)]
    assert facts_of(after(), authorize(1, balance=0, owed=1)) == [
        events.Declined(amount=1, reason=DECLINED)
    ]


def test_an_open_pull_is_resized_only_when_the_shortfall_changes() -> None:
    short = after(clear(100, balance=0))

    assert facts_of(short, refund(10)) == [events.Refunded(amount=10, final=False)]
    assert after(clear(100, balance=0), clear(50, balance=0)).open_pull == 150
    assert after(clear(100, balance=0), take_back(30)).open_pull == 70


def test_a_debt_is_recovered_with_exactly_its_amount() -> None:
    unpaid = after(clear(100, balance=0), refund(70), reverse_refund(50, balance=0))

    assert facts_of(unpaid, commands.Recover(balance=50)) == [events.DebitRecovered(amount=50)]


def test_what_has_cleared_beyond_its_authorization_has_nothing_to_expire() -> None:
    beyond = after(authorize(100), clear(150, final=False))

    assert facts_of(beyond, commands.Expire()) == [events.AuthorizationExpired(amount=0)]
    assert facts_of(beyond, commands.Cancel()) == [events.AuthorizationCancelled(amount=0)]
    assert (beyond.outstanding, beyond.held, beyond.overdrawn) == (0, 0, 0)


# --- judgements -------------------------------------------------------------------------------


def test_an_authorization_on_what_has_settled_is_judged_by_what_it_adds() -> None:
    settled = after(authorize(9000), clear(9000))

    assert facts_of(settled, authorize(1_000_000, balance=1000)) == [
        events.Declined(amount=1_000_000, reason=DECLINED)
    ]
    assert facts_of(settled, authorize(1000, balance=1000)) == [events.Authorized(amount=1000)]


def test_an_advice_of_what_was_refused_changes_nothing() -> None:
    refused = after(authorize(60_000, balance=50_000))

    assert facts_of(refused, commands.Advise(total=400, balance=50_000)) == []


def test_a_clearing_with_more_to_come_opens_what_a_refund_had_closed() -> None:
    returned = after(refund(2000), clear(10_000, final=False))

    assert (returned.status, returned.closed) == (Status.PARTIALLY_SETTLED, False)


def test_a_fold_copies_every_total_and_does_not_change_its_start() -> None:
    kinds = {"closed_by": Closure.EXPIRED, "decline_reason": events.DeclineReason.CARD_PAUSED}
    totals = {
        field.name: kinds.get(field.name, place)
        for place, field in enumerate(fields(CardTransaction), start=1)
    }
    state = CardTransaction(**totals)  # type: ignore[arg-type]

    folded = fold((), state)
    fold([events.Refunded(amount=7, final=True)], state)

    assert folded is not state
    assert folded == state == CardTransaction(**totals)  # type: ignore[arg-type]
