"""One funding account driven with the pure rules alone, and stories to drive it with."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from hypothesis import strategies as st

from ledger.core import commands, events, sandbox
from ledger.core.card import CardState
from ledger.core.card_transaction import UNKNOWN, CardTransaction, decide, fold
from ledger.core.entries import Account, Entry, deposit_entry, entries
from tests.model import Model

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def authorize(
    amount: int,
    *,
    balance: int = 50_000,
    owed: int = 0,
    **said: Any,  # noqa: ANN401 - what an event says
) -> commands.Authorize:
    """Return the question of a network whose card, account and clock raise no objection."""
    usual: dict[str, Any] = {
        "card_state": CardState.ACTIVE,
        "account_usable": True,
        "max_spend": None,
        "forced_decline": None,
        "decided_at": NOON,
        "decide_by": None,
    }
    return commands.Authorize(amount=amount, balance=balance, owed=owed, **(usual | said))


def clear(amount: int, *, final: bool | None = None, balance: int = 50_000) -> commands.Clear:
    return commands.Clear(amount=amount, final=final, balance=balance)


def after(*history: commands.Command) -> CardTransaction:
    """Return the card transaction that `history` makes; every command brings its own balance."""
    state = UNKNOWN
    for command in history:
        state = fold(decide(state, command), state)
    return state


@dataclass
class Books:
    """What the engine does around the rules, for one account and in memory."""

    accounts: Counter[Account] = field(default_factory=Counter)
    histories: dict[str, list[events.Event]] = field(default_factory=dict)
    states: dict[str, CardTransaction] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    @property
    def balance(self) -> int:
        return self.accounts[Account.CUSTOMER]

    @property
    def held(self) -> int:
        return sum(state.held for state in self.states.values())

    @property
    def owed(self) -> int:
        return sum(state.owed for state in self.states.values())

    def state(self, name: str) -> CardTransaction:
        return self.states.get(name, UNKNOWN)

    def authorize(self, name: str, amount: int, descriptor: str = "") -> str | None:
        command = authorize(
            amount,
            balance=self.balance,
            owed=self.owed,
            forced_decline=sandbox.forced_decline(descriptor),
        )
        [first, *_] = self._run(name, command)
        return first.reason if isinstance(first, events.Declined) else None

    def clear(
        self,
        name: str,
        amount: int,
        final: bool | None = None,  # noqa: FBT001 - what a message says
        descriptor: str = "",
    ) -> None:
        balance = 0 if sandbox.refuses_pull(descriptor) else self.balance
        self._run(name, clear(amount, final=final, balance=balance))

    def deposit(self, amount: int) -> None:
        self._post([deposit_entry(amount)])
        self._recover()

    def account(self) -> dict[str, Any]:
        """Return the whole account in the words of fixtures/lifecycles.json."""
        return {
            "balance": self.balance,
            "held": self.held,
            "owed": self.owed,
            "transactions": {
                name: {
                    "status": state.status.value,
                    "authorized": state.authorized_amount,
                    "pullCount": state.pull_count,
                    "pulled": state.pulled,
                    "released": state.released,
                    "settled": state.settled,
                    "refunded": 0,
                }
                for name, state in self.states.items()
            },
        }

    def _run(self, name: str, command: commands.Command) -> list[events.Event]:
        before, balance = self.state(name), self.balance
        facts = decide(before, command)
        state = fold(facts, before)
        self.states[name] = state
        self.histories.setdefault(name, []).extend(facts)
        for fact in facts:
            self._post(entries(fact))
        if state.open_pull and name not in self.queue:
            self.queue.append(name)
        if not state.open_pull and name in self.queue:
            self.queue.remove(name)
        if self.balance > balance:
            self._recover()
        return facts

    def _recover(self) -> None:
        while self.queue and self._run(self.queue[0], commands.Recover(balance=self.balance)):
            pass

    def _post(self, moves: list[Entry]) -> None:
        for entry in moves:
            self.accounts[entry.debit] -= entry.amount
            self.accounts[entry.credit] += entry.amount
        self.entries += moves


class Step(NamedTuple):
    """One thing that happens to an account."""

    what: Literal["AUTHORIZATION", "CLEARING", "DEPOSIT"]
    name: str
    amount: int
    final: bool | None


DESCRIPTORS = {"T1": "", "T2": "", "T3": "CAFE ROMA", "T4": "REFUSED 002", "T5": "PAUSED 003"}
"""A merchant for every card transaction of a story; two of them speak to the sandbox."""

# Few values, so that amounts meet: exact clearings, holds that just fit, sums that cancel.
small = st.sampled_from([1, 2, 3, 5, 10, 50, 99, 100])
amounts = small | st.integers(1, 1_000) | st.integers(1, 2**40)
names = st.sampled_from(sorted(DESCRIPTORS))
honest_names = st.sampled_from(["T1", "T2", "T3"])
finality = st.sampled_from([None, True, False])


def steps(
    who: st.SearchStrategy[str] = names, how_much: st.SearchStrategy[int] = amounts
) -> st.SearchStrategy[Step]:
    nothing = st.none()
    return (
        st.builds(Step, st.just("AUTHORIZATION"), who, how_much, nothing)
        | st.builds(Step, st.just("CLEARING"), who, how_much, finality)
        | st.builds(Step, st.just("DEPOSIT"), st.just(""), how_much, nothing)
    )


stories = st.lists(steps(), max_size=14)
tight_stories = st.lists(steps(honest_names, small), min_size=3, max_size=14)
"""Little money and small amounts: declines, shortfalls and recoveries are common."""


def tell(step: Step, *listeners: Books | Model) -> list[str | None]:
    """Let every listener live through `step`; return what each of them answers."""
    descriptor = DESCRIPTORS.get(step.name, "")
    tellers: dict[str, Callable[[Books | Model], str | None]] = {
        "AUTHORIZATION": lambda one: one.authorize(step.name, step.amount, descriptor),
        "CLEARING": lambda one: one.clear(step.name, step.amount, step.final, descriptor),
        "DEPOSIT": lambda one: one.deposit(step.amount),
    }
    return [tellers[step.what](listener) for listener in listeners]
