"""The life of one card transaction: examples first, then what holds for every history."""

import itertools

import pytest
from hypothesis import event as seen
from hypothesis import given
from hypothesis import strategies as st

from ledger.core import commands, events
from ledger.core.card_transaction import UNKNOWN, CardTransaction, Status, decide, evolve, fold
from ledger.core.money import MAX_AMOUNT, AmountOutOfRangeError
from tests.books import Books, Step, after, authorize, clear, stories, tell, tight_stories
from tests.model import Model

DECLINED = events.DeclineReason.INSUFFICIENT_FUNDS


# --- examples --------------------------------------------------------------------------------


def test_an_authorization_pulls_what_it_sets_aside() -> None:
    decided = decide(UNKNOWN, authorize(1250))

    assert decided == [events.Authorized(amount=1250), events.Pulled(amount=1250)]


def test_a_tip_above_the_authorization_pulls_the_difference_before_it_clears() -> None:
    authorized = after(authorize(1250))

    decided = decide(authorized, clear(1500))

    assert decided == [
        events.Pulled(amount=250),
        events.Cleared(amount=1500, unfunded=0, final=True),
    ]
    assert fold(decided, authorized).status is Status.SETTLED


def test_a_clearing_of_less_leaves_the_rest_on_hold() -> None:
    shipped = after(authorize(9000), clear(4000))

    assert (shipped.status, shipped.held) == (Status.PARTIALLY_SETTLED, 5000)


def test_a_final_clearing_of_less_releases_the_rest() -> None:
    decided = decide(after(authorize(9000), clear(4000)), clear(3000, final=True))

    assert decided == [
        events.Cleared(amount=3000, unfunded=0, final=True),
        events.Released(amount=2000),
    ]


def test_a_surplus_of_one_unit_is_released() -> None:
    assert after(authorize(100), clear(99, final=True)).released == 1


def test_a_clearing_after_the_final_one_is_pulled_afresh() -> None:
    closed = after(authorize(9000), clear(4000, final=True))

    decided = decide(closed, clear(5000))

    assert decided == [
        events.Pulled(amount=5000),
        events.Cleared(amount=5000, unfunded=0, final=True),
    ]


def test_a_clearing_that_is_said_not_to_be_final_leaves_the_card_transaction_open() -> None:
    state = after(authorize(1000), clear(1000, final=False))

    assert state.status is Status.PARTIALLY_SETTLED
    assert not state.closed


def test_an_authorization_that_follows_its_clearing_pulls_nothing_more() -> None:
    decided = decide(after(clear(2400)), authorize(2400))

    assert decided == [events.Authorized(amount=2400)]


def test_an_authorization_that_follows_its_clearing_needs_no_funds() -> None:
    decided = decide(after(clear(2400)), authorize(2400, balance=0))

    assert decided == [events.Authorized(amount=2400)]


def test_a_clearing_that_the_account_cannot_pay_opens_a_pull_and_is_owed() -> None:
    authorized = after(authorize(48_000))

    decided = decide(authorized, clear(55_000, balance=2000))

    assert decided == [
        events.PullOpened(amount=7000),
        events.Cleared(amount=55_000, unfunded=7000, final=True),
    ]
    state = fold(decided, authorized)
    assert (state.status, state.owed, state.pulled) == (Status.EXCEPTION, 7000, 48_000)


def test_a_shortfall_that_grows_resizes_the_one_open_pull() -> None:
    short = after(clear(100, balance=0))

    decided = decide(short, clear(50, balance=0))

    assert decided == [
        events.PullResized(amount=150),
        events.Cleared(amount=50, unfunded=50, final=True),
    ]
    assert fold(decided, short).pull_count == 1


def test_an_open_pull_is_paid_by_recovery_only_even_when_a_clearing_finds_money() -> None:
    decided = decide(after(clear(100, balance=0)), clear(50, balance=1_000))

    assert events.PullResized(amount=150) in decided


def test_an_open_pull_is_not_counted_twice_when_more_is_asked_for() -> None:
    short = after(clear(100, final=False, balance=0))  # These 100 are part of what is owed.

    declined = decide(short, authorize(200, balance=199, owed=100))
    approved = decide(short, authorize(200, balance=200, owed=100))

    assert declined == [events.Declined(amount=200, reason=DECLINED)]
    assert approved == [events.Authorized(amount=200), events.PullResized(amount=200)]


def test_recovery_pays_an_open_pull_whole_or_not_at_all() -> None:
    short = after(clear(100, balance=40))

    assert decide(short, commands.Recover(balance=99)) == []
    assert decide(short, commands.Recover(balance=100)) == [
        events.PullRecovered(amount=100, unfunded=100)
    ]


def test_recovery_finds_nothing_to_do_where_nothing_is_open() -> None:
    assert decide(after(authorize(100)), commands.Recover(balance=1_000)) == []


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
    decided = decide(after(authorize(400)), authorize(200))

    assert decided == [events.Authorized(amount=200), events.Pulled(amount=200)]


def test_a_total_beyond_63_bits_is_refused_and_never_wraps() -> None:
    everything = after(authorize(MAX_AMOUNT, balance=MAX_AMOUNT))

    for command in (
        authorize(1, balance=MAX_AMOUNT),
        clear(MAX_AMOUNT, balance=MAX_AMOUNT),
    ):
        state = fold(decide(everything, clear(1, final=False, balance=0)), everything)
        with pytest.raises(AmountOutOfRangeError):
            decide(state, command)


def test_a_pull_that_could_never_be_paid_within_63_bits_is_not_opened() -> None:
    # What is pulled is counted gross: releases never lower it.
    released = after(authorize(MAX_AMOUNT, balance=MAX_AMOUNT), clear(1, final=True))

    with pytest.raises(AmountOutOfRangeError):
        decide(released, clear(1, balance=0))


# --- what holds for every history --------------------------------------------------------------


def lived_through(story: list[Step], start: int) -> Books:
    books = Books()
    if start:
        books.deposit(start)
    for step in story:
        tell(step, books)
    return books


any_story = st.builds(lived_through, stories, st.integers(0, 2**42))
tight_story = st.builds(lived_through, tight_stories, st.integers(0, 150))
books_of_any_kind = any_story | tight_story


@given(stories | tight_stories, st.integers(0, 300))
def test_after_every_step_the_rules_agree_with_the_naive_model(
    story: list[Step], start: int
) -> None:
    books, model = Books(), Model()
    books.deposit(start) if start else None
    model.deposit(start)

    for step in story:
        answer, expected = tell(step, books, model)

        assert answer == expected
        assert books.account() == model.account()
        assert books.queue == model.queue
        if model.queue:
            seen("an open pull")
        if len(model.queue) > 1:
            seen("a queue of open pulls")
        if expected:
            seen(f"declined: {expected}")
    if any(isinstance(fact, events.PullRecovered) for facts in books.histories.values()
           for fact in facts):  # fmt: skip
        seen("a recovery")


@given(books_of_any_kind)
def test_the_roll_up_is_the_fold_of_its_events(books: Books) -> None:
    for name, state in books.states.items():
        assert fold(books.histories[name]) == state
        assert state.sequence == len(books.histories[name])


@given(books_of_any_kind)
def test_what_is_funded_is_what_is_settled_and_held_less_what_is_owed(books: Books) -> None:
    for state in books.states.values():
        assert state.pulled - state.released - state.settled == state.held - state.owed
        assert not (state.held and state.owed)


@given(books_of_any_kind)
def test_what_is_funded_and_asked_for_is_what_is_required(books: Books) -> None:
    for state in books.states.values():
        assert state.funded + state.open_pull == state.required


@given(books_of_any_kind)
def test_nothing_is_released_that_was_not_pulled(books: Books) -> None:
    for state in books.states.values():
        assert state.pulled >= state.released >= 0


@given(books_of_any_kind)
def test_totals_are_what_the_events_say(books: Books) -> None:
    for name, state in books.states.items():
        history = books.histories[name]
        clearings = [event.amount for event in history if isinstance(event, events.Cleared)]
        paid = [
            event.amount
            for event in history
            if isinstance(event, events.Pulled | events.PullRecovered)
        ]

        assert (state.settled, state.settlement_count) == (sum(clearings), len(clearings))
        assert state.pulled == sum(paid)
        assert state.pull_count == sum(
            isinstance(event, events.Pulled | events.PullOpened) for event in history
        )


@given(books_of_any_kind)
def test_an_exception_is_what_has_an_open_pull_and_owes(books: Books) -> None:
    for state in books.states.values():
        assert (state.status is Status.EXCEPTION) == bool(state.open_pull) == bool(state.owed)


@given(books_of_any_kind, st.integers(1, 2**41), st.integers(0, 2**41))
def test_no_approval_takes_more_than_the_balance_less_what_is_owed(
    books: Books, amount: int, owed_elsewhere: int
) -> None:
    for state in [*books.states.values(), UNKNOWN]:
        owed = books.owed + owed_elsewhere

        [first, *rest] = decide(state, authorize(amount, balance=books.balance, owed=owed))

        pulled = sum(event.amount for event in rest if isinstance(event, events.Pulled))
        if isinstance(first, events.Authorized):
            assert pulled <= max(books.balance - owed, 0)
            assert not any(isinstance(event, events.PullOpened) for event in rest)
        else:
            assert rest == []


@given(books_of_any_kind, st.integers(1, 2**41), st.sampled_from([None, True, False]))
def test_no_clearing_is_refused_and_none_takes_more_than_there_is(
    books: Books,
    amount: int,
    final: bool | None,  # noqa: FBT001 - what a message says
) -> None:
    for state in [*books.states.values(), UNKNOWN]:
        decided = decide(state, clear(amount, final=final, balance=books.balance))

        assert [event.amount for event in decided if isinstance(event, events.Cleared)] == [amount]
        assert fold(decided, state).settled == state.settled + amount
        paid = sum(event.amount for event in decided if isinstance(event, events.Pulled))
        assert paid <= books.balance


@given(books_of_any_kind, st.integers(1, 2**41))
def test_the_same_question_gets_the_same_answer(books: Books, amount: int) -> None:
    for state in [*books.states.values(), UNKNOWN]:
        for command in (authorize(amount), clear(amount), commands.Recover(balance=amount)):
            assert decide(state, command) == decide(state, command)


@given(books_of_any_kind)
def test_every_event_moves_the_sequence_by_one(books: Books) -> None:
    for history in books.histories.values():
        folded = list(itertools.accumulate(history, evolve, initial=UNKNOWN))

        assert [state.sequence for state in folded] == list(range(len(history) + 1))


huge = st.integers(1, MAX_AMOUNT) | st.sampled_from([MAX_AMOUNT, MAX_AMOUNT - 1, 2**62, 2**62 + 1])
huge_commands = st.builds(authorize, huge, balance=st.sampled_from([0, MAX_AMOUNT])) | st.builds(
    clear,
    huge,
    final=st.sampled_from([None, True, False]),
    balance=st.sampled_from([0, MAX_AMOUNT]),
)


@given(st.lists(huge_commands, max_size=8))
def test_no_total_leaves_the_range_of_the_books(history: list[commands.Command]) -> None:
    state = UNKNOWN
    for command in history:
        try:
            facts = decide(state, command)
        except AmountOutOfRangeError:
            seen("out of range")
            continue
        state = fold(facts, state)
        recovered = decide(state, commands.Recover(balance=MAX_AMOUNT))

        assert max(totals(state)) <= MAX_AMOUNT
        assert min(totals(state)) >= 0
        assert max(totals(fold(recovered, state))) <= MAX_AMOUNT


def totals(state: CardTransaction) -> list[int]:
    return [
        state.authorized,
        state.settled,
        state.pulled,
        state.released,
        state.open_pull,
        state.declined,
        state.held,
        state.owed,
    ]


enough = st.integers(1, 1_000)
said = st.sampled_from([True, False])
network = st.builds(Step, st.just("AUTHORIZATION"), st.just("T1"), enough, st.none()) | st.builds(
    Step, st.just("CLEARING"), st.just("T1"), enough, said
)


@given(st.lists(network, max_size=6).flatmap(lambda story: st.tuples(
    st.just(story), st.permutations(story))))  # fmt: skip
def test_where_funds_suffice_and_finality_is_said_totals_do_not_depend_on_the_order(
    orders: tuple[list[Step], list[Step]],
) -> None:
    one, other = (lived_through(list(order), 100_000) for order in orders)

    assert (one.balance, one.held, one.owed) == (other.balance, other.held, other.owed)
    for name, state in one.states.items():
        same = other.states[name]
        assert (state.authorized, state.settled) == (same.authorized, same.settled)
        assert (state.closed, state.funded, state.status) == (
            same.closed,
            same.funded,
            same.status,
        )
