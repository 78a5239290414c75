"""One funding account driven with the pure rules alone: what the engine does around them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cardledger.ledger.books.suspense import suspense_entry, taken_back, type_of_credit
from cardledger.ledger.core import commands, events
from cardledger.ledger.core.card import CardState
from cardledger.ledger.core.card_transaction import UNKNOWN, CardTransaction, decide, waits
from cardledger.ledger.core.entries import ChartAccount, Entry, deposit_entry, entries
from cardledger.ledger.sandbox.funding_rail import SandboxFundingRail
from cardledger.ledger.testing.account import Event

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SANDBOX = SandboxFundingRail(delay=timedelta(0))

_MOVES = {"CLEARING_REVERSAL", "RETURN_REVERSAL"}  # Of what is parked.
_ASKS = {"AUTHORIZATION", "AUTHORIZATION_INCREMENT", "FINANCIAL_AUTHORIZATION"}


def authorize(
    amount: int,
    *,
    balance: int = 50_000,
    owed: int = 0,
    **overrides: Any,  # noqa: ANN401 - JSON
) -> commands.Authorize:
    """Return the question of a network whose card, account and clock raise no objection."""
    usual: dict[str, Any] = {
        "card_state": CardState.ACTIVE,
        "account_usable": True,
        "max_spend": None,
        "issuer_decline": None,
        "decided_at": NOON,
        "decide_by": None,
    }
    return commands.Authorize(amount=amount, balance=balance, owed=owed, **(usual | overrides))


def clear(amount: int, *, final: bool | None = None, balance: int = 50_000) -> commands.Clear:
    return commands.Clear(amount=amount, final=final, balance=balance)


def after(*history: commands.Command) -> CardTransaction:
    """Return the card transaction that `history` makes; every command brings its own balance."""
    state = UNKNOWN
    for command in history:
        state = decide(state, command).after
    return state


def facts_of(state: CardTransaction, command: commands.Command) -> list[events.Event]:
    """Return the facts that `command` gives rise to."""
    return decide(state, command).facts


@dataclass
class InMemoryLedger:
    """What the engine does around the rules, for one account and in memory."""

    card_state: CardState = CardState.ACTIVE
    accounts: Counter[ChartAccount] = field(default_factory=Counter)
    histories: dict[str, list[events.Event]] = field(default_factory=dict)
    states: dict[str, CardTransaction] = field(default_factory=dict)
    descriptors: dict[str, str] = field(default_factory=dict)
    debts: dict[str, int] = field(default_factory=dict)
    parked: list[tuple[int, Event]] = field(default_factory=list)
    suspended: dict[int, Entry] = field(default_factory=dict)
    seen: dict[tuple[str, str], Event] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    reason: str | None = None
    deposited: int = 0

    def balance(self) -> int:
        return self.accounts[ChartAccount.CUSTOMER]

    def held(self) -> int:
        return sum(state.held for state in self.states.values())

    def owed(self) -> int:
        return sum(state.owed for state in self.states.values())

    def written_off(self) -> int:
        return sum(state.written_off for state in self.states.values())

    @property
    def queue(self) -> list[str]:
        return sorted(self.debts, key=lambda name: self.debts[name])

    def state(self, name: str) -> CardTransaction:
        return self.states.get(name, UNKNOWN)

    def figures(self, token: str) -> dict[str, Any]:
        state = self.states[token]
        return {
            "status": state.status.value,
            "authorized": state.authorized_amount,
            "pullCount": state.pull_count,
            "pulled": state.pulled,
            "released": state.released,
            "settled": state.settled_amount,
            "refunded": state.refunded - state.credited,
        }

    def account(self) -> dict[str, Any]:
        """Return the whole account in the words of fixtures/lifecycles.json."""
        return {
            "balance": self.balance(),
            "held": self.held(),
            "owed": self.owed(),
            "transactions": {name: self.figures(name) for name in self.states},
        }

    # --- messages --------------------------------------------------------------------------

    def submit(self, event: Event) -> str:
        """Take one event as it is on the wire; return the word for what became of it."""
        key = (event["source"], event["reference"])
        if key in self.seen:
            return "DUPLICATE" if self.seen[key] == event else "REJECTED"
        self.seen[key] = event
        number, self.reason = len(self.seen), None
        if event["type"] == "DEPOSIT":
            self.deposited += event["amount"]
            self._post([deposit_entry(event["amount"])])
            self._recover(number)
            return "APPLIED"
        if event["type"] == "CARD_CLOSED":
            for name in list(self.states):
                if self.states[name].stands:
                    self._run(name, commands.Cancel(), number)
            return "APPLIED"
        if event["type"] == "WRITE_OFF":
            command = commands.WriteOff(amount=event["amount"])
            facts = self._run(event["issuerTransactionToken"], command, number)
            return "APPLIED" if facts else "REJECTED"
        return self._network(event, number)

    def _network(self, event: Event, number: int) -> str:
        name = event["issuerTransactionToken"]
        command = self._command(event)
        if waits(self.state(name), command):
            self.parked.append((number, event))
            if event["type"] in _MOVES:
                kind = event["type"]
                meant = type_of_credit(kind) if self.state(name).is_credit else kind
                self.suspended[number] = suspense_entry(meant, event["amount"])
                self._post([self.suspended[number]])
            return "PARKED"
        facts = self._run(name, command, number)
        if not facts:
            return "IGNORED"
        self.descriptors.setdefault(name, event.get("merchant", {}).get("descriptor", ""))
        for place, waiting in list(self.parked):
            mine = waiting["issuerTransactionToken"] == name
            if mine and not waits(self.state(name), self._command(waiting)):
                self.parked.remove((place, waiting))
                if place in self.suspended:
                    self._post([taken_back(self.suspended.pop(place))])
                self._run(name, self._command(waiting), place)
        first = facts[0]
        if isinstance(first, events.Declined | events.CreditDeclined):
            self.reason = first.reason.value
            return "DECLINED"
        return "APPLIED"

    def _command(self, event: Event) -> commands.Command:  # noqa: C901, PLR0912 - one branch a kind
        name, amount = event["issuerTransactionToken"], event.get("amount", 0)
        descriptor = self.descriptors.get(name) or event.get("merchant", {}).get("descriptor", "")
        balance = 0 if SANDBOX.refuses_pull(descriptor) else self.balance()
        match event["type"]:
            case kind if kind in _ASKS:
                return authorize(
                    amount,
                    balance=self.balance(),
                    owed=self.owed(),
                    card_state=self.card_state,
                    issuer_decline=SANDBOX.issuer_decline(descriptor),
                    confirms_later=SANDBOX.confirms_later(descriptor),
                    clears=kind == "FINANCIAL_AUTHORIZATION",
                )
            case "STAND_IN_AUTHORIZATION":
                return commands.StandIn(amount=amount, balance=balance)
            case "AUTHORIZATION_ADVICE":
                return commands.Advise(total=amount, balance=balance)
            case "AUTHORIZATION_REVERSAL":
                return commands.Reverse(amount=event.get("amount"))
            case "AUTHORIZATION_EXPIRY":
                return commands.Expire()
            case "CLEARING":
                return clear(amount, final=event.get("final"), balance=balance)
            case "CLEARING_REVERSAL":
                return commands.ReverseClearing(amount=amount, balance=balance)
            case "RETURN":
                return commands.Refund(amount=amount)
            case "FINANCIAL_CREDIT_AUTHORIZATION":
                return commands.Credit(amount=amount)
            case "CREDIT_AUTHORIZATION":
                return commands.AuthorizeCredit(
                    amount=amount,
                    card_state=self.card_state,
                    account_usable=True,
                    issuer_decline=SANDBOX.issuer_decline(descriptor),
                    decided_at=NOON,
                    decide_by=None,
                )
            case "CREDIT_AUTHORIZATION_ADVICE":
                return commands.AdviseCredit(total=amount)
            case "RETURN_REVERSAL":
                return commands.ReverseRefund(amount=amount, balance=balance)
            case "PULL_CONFIRMATION":
                return commands.ConfirmPull(amount=amount, succeeded=event["succeeded"])
        raise AssertionError(event)

    # --- what the engine does ----------------------------------------------------------------

    def _run(self, name: str, command: commands.Command, number: int) -> list[events.Event]:
        before = self.state(name)
        decision = decide(before, command)
        facts, state = decision.facts, decision.after
        if not facts:
            return []
        self.states[name] = state
        self.histories.setdefault(name, []).extend(facts)
        for fact in facts:
            self._post(entries(fact))
        if state.open_pull or state.unpaid:
            self.debts.setdefault(name, number)
        else:
            self.debts.pop(name, None)
        again = (
            events.Released
            | events.Refunded
            | events.Credited
            | events.PullResized
            | events.WrittenOff
        )
        if any(isinstance(fact, again) for fact in facts):
            self._recover(number)
        elif any(isinstance(fact, events.PullFailed) for fact in facts):
            self._recover(number, ahead_of=name)
        return facts

    def _recover(self, number: int, *, ahead_of: str | None = None) -> None:
        for name in self.queue:
            if name == ahead_of:
                return
            self._run(name, commands.Recover(balance=self.balance()), number)
            if name in self.debts:
                return

    def _post(self, moves: list[Entry]) -> None:
        for entry in moves:
            self.accounts[entry.debit] -= entry.amount
            self.accounts[entry.credit] += entry.amount
        self.entries += moves


def lived_through(story: Sequence[Event]) -> InMemoryLedger:
    """Return the books after `story`."""
    books = InMemoryLedger()
    for event in story:
        books.submit(event)
    return books
