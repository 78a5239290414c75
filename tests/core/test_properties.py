"""What holds for every history of one funding account, whatever the network sends."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event as seen
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.core import commands, events
from cardledger.ledger.core.card_transaction import UNKNOWN, CardTransaction, decide, evolve, fold
from cardledger.ledger.core.entries import ChartAccount, entries
from cardledger.ledger.core.money import MAX_AMOUNT, AmountOutOfRangeError
from cardledger.ledger.core.status import Status
from cardledger.ledger.projections.event_rows import EventRow, from_row, to_row
from cardledger.ledger.projections.explain import changes, movements, sentence, steps
from cardledger.ledger.testing import machine
from cardledger.ledger.testing.model import Model
from cardledger.ledger.testing.strategies import (
    SCENE,
    Event,
    Scene,
    Story,
    arbitrary,
    credited,
    duplicated,
    hostile,
    numbered,
    shuffled,
    tight,
    valid,
    written_off,
)
from tests.books import InMemoryLedger, authorize, clear, lived_through

stories = (
    arbitrary(write_offs=True)
    | tight(write_offs=True)
    | written_off()
    | credited()
    | valid()
    | duplicated(tight(write_offs=True))
    | shuffled(valid())
)
books_of_any_kind = st.builds(lived_through, stories)


def states(books: InMemoryLedger) -> Iterator[CardTransaction]:
    """Yield every state that any card transaction of `books` has ever been in."""
    for history in books.histories.values():
        yield from itertools.accumulate(history, evolve, initial=UNKNOWN)


# --- the rules against the model ----------------------------------------------------------------


@given(stories)
def test_after_every_step_the_rules_agree_with_the_naive_model(story: Story) -> None:
    books, model = InMemoryLedger(), Model()

    for event in story:
        word = model.submit(event)

        assert books.submit(event) == word
        assert books.reason == model.reason
        assert books.account() == model.account()
        assert books.queue == model.queue
        assert len(books.parked) == len(model.parked)
        if not model.rejected:
            assert books.accounts[ChartAccount.SUSPENSE] == -model.suspended()
            network = books.accounts[ChartAccount.NETWORK_SETTLEMENT]
            assert network == model.network_settlement()
        for name, state in books.states.items():
            purchase = model.purchases[name]
            assert state.status_reason == model.status_reason(name)
            assert (state.pending, state.pending_count) == (
                purchase["pending"],
                purchase["pendingCount"],
            )
            assert (state.open_pull, state.unpaid) == (purchase["open"], purchase["unpaid"])
            assert (state.clearings_written_off, state.debits_written_off) == (
                purchase["clearingsWrittenOff"],
                purchase["debitsWrittenOff"],
            )
            seen(f"{event['type']} {word} {state.status}")


class RulesMachine(machine.LedgerMachine):
    """The rules, driven by the state machine that platforms use."""

    write_offs = True

    def ledger(self) -> machine.Ledger:
        return InMemoryLedger()


TestRules = RulesMachine.TestCase


def due(event: Mapping[str, Any], *, of_credit: bool) -> int:
    """Return what a parked event has moved, due to the network if positive."""
    sign = {"RETURN_REVERSAL": 1, "CLEARING_REVERSAL": 1 if of_credit else -1}.get(event["type"], 0)
    return sign * int(event.get("amount") or 0)


# --- sums ---------------------------------------------------------------------------------------


@given(stories)
def test_after_every_step_available_held_and_owed_add_up(story: Story) -> None:
    books = InMemoryLedger()
    waiting: dict[int, int] = {}  # What each parked event has moved, by what was known then.

    for event in story:
        books.submit(event)

        for number, parked in books.parked:
            of_credit = books.state(parked["issuerTransactionToken"]).is_credit
            waiting.setdefault(number, due(parked, of_credit=of_credit))
        kept = list(books.states.values())
        moved = sum(state.refunded - state.settled for state in kept)
        lost = books.written_off()
        assert books.balance() + books.held() - books.owed() == books.deposited + moved + lost
        assert min(books.balance(), books.held(), books.owed(), lost) >= 0
        assert books.accounts[ChartAccount.CARD_HOLDS] == books.held()
        assert books.accounts[ChartAccount.RECEIVABLE] == -books.owed()
        suspended = -books.accounts[ChartAccount.SUSPENSE]
        assert suspended == sum(waiting[number] for number, _ in books.parked)
        assert books.accounts[ChartAccount.NETWORK_SETTLEMENT] == suspended - moved
        assert books.accounts[ChartAccount.OPERATOR_LOSS] == -lost
        assert books.accounts[ChartAccount.SANDBOX_FUNDING] == -books.deposited
        assert sum(books.accounts.values()) == 0


@given(books_of_any_kind)
def test_the_entries_of_a_card_transaction_are_its_totals(books: InMemoryLedger) -> None:
    for name, state in books.states.items():
        effect: Counter[ChartAccount] = Counter()
        for event in books.histories[name]:
            for entry in entries(event):
                effect[entry.debit] -= entry.amount
                effect[entry.credit] += entry.amount

        assert effect[ChartAccount.CARD_HOLDS] == state.held
        assert effect[ChartAccount.RECEIVABLE] == -state.owed
        assert effect[ChartAccount.NETWORK_SETTLEMENT] == state.settled - state.refunded
        assert effect[ChartAccount.OPERATOR_LOSS] == -state.written_off
        customer = -state.funded + state.refunded + state.unpaid + state.debits_written_off
        assert effect[ChartAccount.CUSTOMER] == customer


@given(books_of_any_kind)
def test_the_customer_pays_pulls_and_debits_and_gets_releases_refunds_and_failed_pulls(
    books: InMemoryLedger,
) -> None:
    for name, state in books.states.items():
        history = books.histories[name]
        lines = [entry for event in history for entry in entries(event)]
        paid = sum(entry.amount for entry in lines if entry.debit is ChartAccount.CUSTOMER)
        got = sum(entry.amount for entry in lines if entry.credit is ChartAccount.CUSTOMER)
        failed = total(history, events.PullFailed)
        debited = total(history, events.RefundReversed) - state.unpaid - state.debits_written_off

        assert paid == state.pulled + failed + debited
        refunded = total(history, events.Refunded) + total(history, events.Credited)
        assert got == state.released + failed + refunded


def total(history: Sequence[events.Event], kind: type[events.Event]) -> int:
    return sum(event.amount for event in history if isinstance(event, kind))


@given(books_of_any_kind)
def test_every_entry_moves_something_between_two_accounts(books: InMemoryLedger) -> None:
    for entry in books.entries:
        assert entry.amount > 0
        assert entry.debit is not entry.credit


# --- the roll-up --------------------------------------------------------------------------------


@given(books_of_any_kind)
def test_the_roll_up_is_the_fold_of_its_events(books: InMemoryLedger) -> None:
    for name, state in books.states.items():
        history = books.histories[name]
        assert fold(history) == state
        assert state.sequence == len(history)


@given(books_of_any_kind, st.data())
def test_a_replay_from_any_place_is_the_replay_from_the_beginning(
    books: InMemoryLedger, data: st.DataObject
) -> None:
    for name, state in books.states.items():
        history = books.histories[name]
        place = data.draw(st.integers(0, len(history)))

        assert fold(history[place:], fold(history[:place])) == state


@given(books_of_any_kind)
def test_what_is_written_and_read_again_replays_the_same(books: InMemoryLedger) -> None:
    for name, state in books.states.items():
        read = [from_row(EventRow(*to_row(event))) for event in books.histories[name]]

        assert read == books.histories[name]
        assert fold(read) == state


@given(books_of_any_kind)
def test_totals_are_what_the_events_say(books: InMemoryLedger) -> None:
    for name, state in books.states.items():
        history = books.histories[name]
        counts = Counter(map(type, history))

        assert state.settled == total(history, events.Cleared) - total(
            history, events.ClearingReversed
        )
        assert state.settlement_count == counts[events.Cleared]
        refunded = total(history, events.Refunded) + total(history, events.Credited)
        assert state.refunded == refunded - total(history, events.RefundReversed)
        assert state.refund_count == counts[events.Refunded] + counts[events.Credited]
        assert state.released == total(history, events.Released)
        assert state.release_count == counts[events.Released]
        pulled = events.Pulled, events.PullPending, events.PullRecovered
        recovered = sum(
            event.unfunded for event in history if isinstance(event, events.WriteOffRecovered)
        )
        assert state.pulled == (
            sum(total(history, kind) for kind in pulled)
            + recovered
            - total(history, events.PullFailed)
        )
        assert state.written_off == total(history, events.WrittenOff) - total(
            history, events.WriteOffReversed
        ) - total(history, events.WriteOffRecovered)
        opened = events.Pulled, events.PullPending, events.PullOpened
        assert state.pull_count == sum(counts[kind] for kind in opened)
        answered = counts[events.PullConfirmed] + counts[events.PullFailed]
        assert state.pending_count == counts[events.PullPending] - answered >= 0


@given(books_of_any_kind)
def test_what_is_funded_and_asked_for_is_what_is_required_after_every_message(
    books: InMemoryLedger,
) -> None:
    for state in books.states.values():
        assert state.funded + state.clearings_written_off + state.open_pull == state.required
        assert state.clearings_written_off <= state.settled
        assert state.held <= state.funded
        assert state.required == (
            state.settled if state.closed else max(state.authorized, state.settled)
        )


@given(books_of_any_kind)
def test_what_is_open_is_declined_or_can_still_expire(books: InMemoryLedger) -> None:
    for state in books.states.values():
        assert state.closed or state.stands or state.status is Status.DECLINED


@given(books_of_any_kind)
def test_no_total_is_ever_negative_and_no_release_is_more_than_its_pulls(
    books: InMemoryLedger,
) -> None:
    for state in states(books):
        assert state.pulled >= state.released >= 0
        assert 0 <= state.pending <= state.funded
        assert not (state.held and state.overdrawn)
        assert min(totals(state)) >= 0
        assert state.dues == (state.held, state.owed, state.pending)


def totals(state: CardTransaction) -> list[int]:
    return [
        state.authorized,
        state.settled,
        state.refunded,
        state.pulled,
        state.pending,
        state.pending_count,
        state.open_pull,
        state.unpaid,
        state.released,
        state.declined,
        state.credit_authorized or 0,
        state.outstanding,
        state.clearings_written_off,
        state.debits_written_off,
        state.held,
        state.owed,
    ]


@given(books_of_any_kind)
def test_an_exception_is_what_has_something_to_pay(books: InMemoryLedger) -> None:
    for state in books.states.values():
        waits = bool(state.open_pull or state.unpaid)

        assert (state.status is Status.EXCEPTION) == waits
        assert waits or not state.owed


@given(books_of_any_kind)
def test_every_event_is_explained_and_its_changes_chain(books: InMemoryLedger) -> None:
    for history in books.histories.values():
        figures: dict[str, Any] = {}
        for number, (before, event, after) in enumerate(steps(history), start=1):
            text = sentence(before, event, after, "USD")
            assert text[0].isupper() or text[0].isdigit()
            assert text.endswith(".")
            assert after.sequence == number
            assert [entry.amount.amount for entry in movements(event, "USD")] == [
                entry.amount for entry in entries(event)
            ]
            for change in changes(before, after):
                assert change.before != change.after
                assert figures.get(change.field, change.before) == change.before
                figures[change.field] = change.after


# --- repetitions and orders ---------------------------------------------------------------------


@given(stories, st.data())
def test_a_message_that_comes_again_changes_nothing(story: Story, data: st.DataObject) -> None:
    once, again = InMemoryLedger(), InMemoryLedger()

    for place, event in enumerate(story):
        once.submit(event)
        again.submit(event)
        assert again.submit(story[data.draw(st.integers(0, place))]) == "DUPLICATE"

    assert once.account() == again.account()
    assert once.histories == again.histories


ENOUGH = 10**9
"""More money than any of these stories asks for."""

few = st.integers(1, 100)


@st.composite
def finally_cleared(draw: st.DrawFn) -> Story:
    """Return any events of a card transaction of which one clearing is final.

    Every reversal is of an earlier event: a reversal of more stays parked.
    """
    final = [SCENE.event("CLEARING", "T1", amount=draw(few), final=True)]
    clearings = draw(st.lists(st.builds(clearing, few, st.booleans()), max_size=2)) + final
    refunds = [
        SCENE.event("RETURN", "T1", amount=draw(few)) for _ in range(draw(st.integers(0, 2)))
    ]
    back = parts(draw, sum(event["amount"] for event in clearings), "CLEARING_REVERSAL")
    again = parts(draw, sum(event["amount"] for event in refunds), "RETURN_REVERSAL")
    others = st.sampled_from(
        [
            "AUTHORIZATION",
            "AUTHORIZATION_INCREMENT",
            "STAND_IN_AUTHORIZATION",
            "FINANCIAL_AUTHORIZATION",
            "AUTHORIZATION_ADVICE",
            "AUTHORIZATION_REVERSAL",
        ]
    )
    rest = [
        SCENE.event(kind, "T1", amount=draw(few)) for kind in draw(st.lists(others, max_size=4))
    ]
    if draw(st.booleans()):
        rest.append(SCENE.event("AUTHORIZATION_REVERSAL", "T1"))
    if draw(st.booleans()):
        rest.append(SCENE.event("AUTHORIZATION_EXPIRY", "T1"))
    return numbered([*clearings, *refunds, *back, *again, *rest])


@st.composite
def left_open(draw: st.DrawFn) -> Story:
    """Return events of one authorization with no clearing that is final.

    Its reversals say their amount and, with the clearings, leave something of every approval.
    """
    asked = [SCENE.event("AUTHORIZATION", "T1", amount=draw(st.integers(300, 400)))]
    asked += [
        SCENE.event("AUTHORIZATION_INCREMENT", "T1", amount=draw(st.integers(300, 400)))
        for _ in range(draw(st.integers(0, 2)))
    ]
    clearings = [clearing(draw(few), final=False) for _ in range(draw(st.integers(0, 2)))]
    reversals = parts(draw, 99, "AUTHORIZATION_REVERSAL")
    refunds = [
        SCENE.event("RETURN", "T1", amount=draw(few)) for _ in range(draw(st.integers(0, 2)))
    ]
    back = parts(draw, sum(event["amount"] for event in clearings), "CLEARING_REVERSAL")
    again = parts(draw, sum(event["amount"] for event in refunds), "RETURN_REVERSAL")
    return numbered([*asked, *clearings, *reversals, *refunds, *back, *again])


@st.composite
def given_up(draw: st.DrawFn) -> Story:
    """Return events of one authorization that is cleared in part, then given up as a whole.

    Given up by reversals without an amount, expiry, or an amount that takes the rest.
    """
    amount = draw(st.integers(201, 400))
    asked = [SCENE.event("AUTHORIZATION", "T1", amount=amount)]
    clearings = [clearing(draw(few), final=False) for _ in range(draw(st.integers(0, 2)))]
    refunds = [
        SCENE.event("RETURN", "T1", amount=draw(few)) for _ in range(draw(st.integers(0, 2)))
    ]
    back = parts(draw, sum(event["amount"] for event in clearings), "CLEARING_REVERSAL")
    again = parts(draw, sum(event["amount"] for event in refunds), "RETURN_REVERSAL")
    ends = draw(
        st.lists(
            st.sampled_from(["AUTHORIZATION_REVERSAL", "AUTHORIZATION_EXPIRY"]),
            min_size=1,
            max_size=2,
        )
    )
    ended = [SCENE.event(kind, "T1") for kind in ends]
    return numbered([*asked, *clearings, *refunds, *back, *again, *ended])


def clearing(amount: int, final: bool) -> Event:  # noqa: FBT001 - what a message says
    return SCENE.event("CLEARING", "T1", amount=amount, final=final)


def parts(draw: st.DrawFn, most: int, kind: str) -> Story:
    """Return up to two events of `kind` that take back `most` at the most."""
    found: Story = []
    for _ in range(draw(st.integers(0, 2))):
        if most:
            amount = draw(st.integers(1, most))
            most -= amount
            found.append(SCENE.event(kind, "T1", amount=amount))
    return found


@given((finally_cleared() | left_open() | given_up()).flatmap(
    lambda story: st.tuples(st.just(story), st.permutations(story))))  # fmt: skip
def test_where_funds_suffice_and_finality_is_said_totals_do_not_depend_on_the_order(
    orders: tuple[Story, Story],
) -> None:
    """The claim, precisely.

    Any order of arrival of the same events ends with the same available, held, settled and
    refunded, where funds suffice, every clearing says whether it is final, nothing is taken back
    that was not given, and one of these:

    - a clearing is final: then any other events of any type;
    - none is: one authorization and its increments, and reversals that say their amount and
      leave, with the clearings, something of each approval;
    - none is: one authorization that clearings do not use up, and its end (an expiry or a
      reversal without an amount).

    What is left out depends on the order by its nature: an advice sets a total, whatever was
    before; a reversal without an amount takes what is there when it comes.
    """
    one, other = (after_deposit(order) for order in orders)

    assert summary(one) == summary(other)


@st.composite
def authorized_credit(draw: st.DrawFn) -> Story:
    """Return a credit authorization, and its clearings by messages that say their direction."""
    asked = SCENE.event("CREDIT_AUTHORIZATION", "T1", amount=draw(few))
    back = [SCENE.event("RETURN", "T1", amount=draw(few)) for _ in range(draw(st.integers(0, 3)))]
    taken = parts(draw, sum(event["amount"] for event in back), "RETURN_REVERSAL")
    return numbered([asked, *back, *taken])


@given(authorized_credit().flatmap(lambda story: st.tuples(st.just(story), st.permutations(story))))
def test_the_clearings_of_a_credit_may_come_before_its_authorization(
    orders: tuple[Story, Story],
) -> None:
    one, other = (after_deposit(order) for order in orders)

    assert summary(one) == summary(other)
    assert one.states["T1"].authorized_amount == other.states["T1"].authorized_amount
    assert one.states["T1"].pays_account
    assert other.states["T1"].status is not Status.REFUNDED


def after_deposit(story: Story) -> InMemoryLedger:
    start = {**SCENE.deposit(ENOUGH), "reference": "start"}
    return lived_through([start, *story])


MOVED_BACK = {"CLEARING_REVERSAL", "RETURN_REVERSAL"}


def summary(books: InMemoryLedger) -> tuple[int, ...]:
    kept = books.states.values()
    return (
        books.balance(),
        books.held(),
        books.owed(),
        sum(state.settled for state in kept),
        sum(state.refunded for state in kept),
        sum(event["type"] in MOVED_BACK for _, event in books.parked),
    )


def test_an_advice_waits_for_its_authorization() -> None:
    asked = SCENE.event("AUTHORIZATION", "T1", amount=7500)
    advised = SCENE.event("AUTHORIZATION_ADVICE", "T1", amount=4800)

    in_order = after_deposit(numbered([asked, advised]))
    other_way = after_deposit(numbered([advised, asked]))

    assert summary(in_order) == summary(other_way)
    assert other_way.held() == 4800


# --- decisions ----------------------------------------------------------------------------------


def some_commands(balance: int, owed: int, amount: int) -> list[commands.Command]:
    return [
        authorize(amount, balance=balance, owed=owed),
        authorize(amount, balance=balance, owed=owed, clears=True),
        authorize(amount, balance=balance, owed=owed, confirms_later=True),
        commands.StandIn(amount=amount, balance=balance),
        commands.Advise(total=amount, balance=balance),
        commands.Reverse(amount=amount),
        commands.Reverse(amount=None),
        commands.TakeBack(authorized=amount),
        commands.TakeBack(authorized=amount, cleared=amount, balance=balance),
        commands.TakeBack(authorized=amount, cleared=amount, reopens=True, balance=balance),
        commands.TakeBack(authorized=amount, reopens=True, is_closed=True, balance=balance),
        commands.Expire(),
        commands.Cancel(),
        clear(amount, final=None, balance=balance),
        clear(amount, final=True, balance=balance),
        clear(amount, final=False, balance=balance),
        commands.Refund(amount=amount),
        commands.Credit(amount=amount),
        commands.AdviseCredit(total=amount),
        commands.Recover(balance=balance),
        commands.WriteOff(amount=amount),
        commands.ConfirmPull(amount=amount, succeeded=True),
        commands.ConfirmPull(amount=amount, succeeded=False),
    ]


@given(books_of_any_kind, st.integers(1, 2**41))
def test_no_decision_takes_more_than_there_is(books: InMemoryLedger, amount: int) -> None:
    balance, owed = books.balance(), books.owed()
    for state in [*books.states.values(), UNKNOWN]:
        for command in some_commands(balance, owed, amount):
            as_it_was = replace(state)
            decision = decide(state, command)
            facts = decision.facts

            assert decision == decide(state, command)
            assert decision.after == fold(facts, state)
            assert state == as_it_was
            lines = [entry for event in facts for entry in entries(event)]
            left = balance
            for line in lines:
                left += line.amount * (line.credit is ChartAccount.CUSTOMER)
                left -= line.amount * (line.debit is ChartAccount.CUSTOMER)
                assert left >= 0
            assert all(from_row(EventRow(*to_row(fact))) == fact for fact in facts)


@given(books_of_any_kind, st.integers(1, 2**41), st.integers(0, 2**41))
def test_no_approval_takes_more_than_the_balance_less_what_is_owed(
    books: InMemoryLedger, amount: int, owed_elsewhere: int
) -> None:
    owed = books.owed() + owed_elsewhere
    for state in [*books.states.values(), UNKNOWN]:
        for clears in (True, False):
            command = authorize(amount, balance=books.balance(), owed=owed, clears=clears)

            decision = decide(state, command)
            [first, *rest], after = decision.facts, decision.after

            if isinstance(first, events.Authorized):
                recovered = [one for one in rest if isinstance(one, events.PullRecovered)]
                of_holds = sum(one.amount - one.unfunded for one in recovered)
                taken = total(rest, events.Pulled) + of_holds
                assert taken <= max(books.balance() - owed, 0)
                assert not any(isinstance(event, events.PullOpened) for event in rest)
                assert after.open_pull <= after.overdrawn, "else the same money is checked again"
            else:
                assert rest == []


@given(books_of_any_kind, st.integers(1, 2**41), st.sampled_from([None, True, False]))
def test_no_clearing_is_refused(
    books: InMemoryLedger,
    amount: int,
    final: bool | None,  # noqa: FBT001 - what a message says
) -> None:
    for state in [*books.states.values(), UNKNOWN]:
        decision = decide(state, clear(amount, final=final, balance=books.balance()))
        facts, after = decision.facts, decision.after

        kind = events.Credited if state.is_credit else events.Cleared
        assert [event.amount for event in facts if isinstance(event, kind)] == [amount]
        moved = after.settled - state.settled, after.refunded - state.refunded
        assert moved == ((0, amount) if state.is_credit else (amount, 0))
        assert after.closed or final is not True


# --- the edge of the books ----------------------------------------------------------------------


@given(hostile(max_size=10))
def test_no_total_leaves_the_range_of_the_books(story: Story) -> None:
    books = InMemoryLedger()

    for event in story:
        before = books.account()
        try:
            books.submit(event)
        except AmountOutOfRangeError:
            seen("out of range")
            assert books.account() == before or books.parked or event["type"] == "DEPOSIT"
            return  # Books have no database transaction to give up.
        for state in books.states.values():
            assert max(totals(state)) <= MAX_AMOUNT
            assert min(totals(state)) >= 0


# --- the tools for platforms --------------------------------------------------------------------


class Forgetful(InMemoryLedger):
    """A ledger with a mistake that is easy to make: it forgets what it has seen."""

    def submit(self, event: Mapping[str, object]) -> str:
        self.seen.clear()
        return super().submit(event)


def test_the_state_machine_finds_a_ledger_that_counts_repetitions() -> None:
    class ForgetfulMachine(machine.LedgerMachine):
        def ledger(self) -> machine.Ledger:
            return Forgetful()

    with pytest.raises(AssertionError):
        ForgetfulMachine.TestCase().runTest()


@given(valid(Scene(shops={"T1": "SHOP"})))
def test_a_valid_life_cycle_is_never_parked_nor_rejected(story: Story) -> None:
    model = Model()

    assert {model.submit(event) for event in story} <= {"APPLIED", "DECLINED", "IGNORED", "PARKED"}
    assert all(event["type"].endswith("REVERSAL") for _, event in model.parked)


@given(duplicated(valid()))
def test_a_duplicated_life_cycle_has_repetitions(story: Story) -> None:
    assert len({event["reference"] for event in story}) < len(story)
