"""The books: every fact that moves money as balanced movements, and what they add up to."""

from hypothesis import given
from hypothesis import strategies as st

from ledger.core import events
from ledger.core.entries import Account, Entry, deposit_entry, entries
from tests.books import Books, Step, stories, tell, tight_stories


def moved(debit: Account, credit: Account, amount: int) -> Entry:
    return Entry(debit=debit, credit=credit, amount=amount)


def test_a_pull_moves_from_the_customer_to_the_card_holds() -> None:
    assert entries(events.Pulled(amount=5)) == [moved(Account.CUSTOMER, Account.CARD_HOLDS, 5)]


def test_a_release_moves_back() -> None:
    assert entries(events.Released(amount=5)) == [moved(Account.CARD_HOLDS, Account.CUSTOMER, 5)]


def test_a_clearing_moves_its_funded_part_from_the_holds_and_the_rest_from_the_receivable() -> None:
    assert entries(events.Cleared(amount=5, unfunded=2, final=True)) == [
        moved(Account.CARD_HOLDS, Account.NETWORK_SETTLEMENT, 3),
        moved(Account.RECEIVABLE, Account.NETWORK_SETTLEMENT, 2),
    ]


def test_a_funded_clearing_leaves_the_receivable_alone() -> None:
    assert entries(events.Cleared(amount=5, unfunded=0, final=True)) == [
        moved(Account.CARD_HOLDS, Account.NETWORK_SETTLEMENT, 5)
    ]


def test_an_unfunded_clearing_leaves_the_holds_alone() -> None:
    assert entries(events.Cleared(amount=5, unfunded=5, final=True)) == [
        moved(Account.RECEIVABLE, Account.NETWORK_SETTLEMENT, 5)
    ]


def test_a_recovery_repays_the_receivable_first() -> None:
    assert entries(events.PullRecovered(amount=5, unfunded=4)) == [
        moved(Account.CUSTOMER, Account.RECEIVABLE, 4),
        moved(Account.CUSTOMER, Account.CARD_HOLDS, 1),
    ]


def test_a_deposit_moves_from_the_sandbox_to_the_customer() -> None:
    assert deposit_entry(5) == moved(Account.SANDBOX_FUNDING, Account.CUSTOMER, 5)


def test_facts_that_move_no_money_have_no_entries() -> None:
    reason = events.DeclineReason.CARD_PAUSED

    assert entries(events.Authorized(amount=5)) == []
    assert entries(events.Declined(amount=5, reason=reason)) == []
    assert entries(events.PullOpened(amount=5)) == []
    assert entries(events.PullResized(amount=5)) == []


@given(stories | tight_stories, st.integers(1, 300))
def test_after_every_step_each_account_holds_what_the_card_transactions_say(
    story: list[Step], start: int
) -> None:
    books = Books()
    books.deposit(start)
    deposited = start

    for step in story:
        tell(step, books)
        deposited += step.amount if step.what == "DEPOSIT" else 0

        states = books.states.values()
        assert books.balance >= 0
        assert books.balance == deposited - sum(state.funded for state in states)
        assert books.accounts[Account.CARD_HOLDS] == books.held
        assert books.accounts[Account.RECEIVABLE] == -books.owed
        assert books.accounts[Account.NETWORK_SETTLEMENT] == sum(state.settled for state in states)
        assert books.accounts[Account.SANDBOX_FUNDING] == -deposited
        assert sum(books.accounts.values()) == 0


@given(stories | tight_stories, st.integers(1, 300))
def test_every_entry_moves_something_between_two_accounts(story: list[Step], start: int) -> None:
    books = Books()
    books.deposit(start)
    for step in story:
        tell(step, books)

    for entry in books.entries:
        assert entry.amount > 0
        assert entry.debit is not entry.credit


@given(stories | tight_stories, st.integers(1, 300))
def test_the_customer_pays_what_is_pulled_and_gets_what_is_released(
    story: list[Step], start: int
) -> None:
    books = Books()
    books.deposit(start)
    for step in story:
        tell(step, books)

    for name, state in books.states.items():
        lines = [entry for event in books.histories[name] for entry in entries(event)]
        paid = sum(entry.amount for entry in lines if entry.debit is Account.CUSTOMER)
        got = sum(entry.amount for entry in lines if entry.credit is Account.CUSTOMER)
        assert (paid, got) == (state.pulled, state.released)
