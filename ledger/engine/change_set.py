"""What facts leave behind: events, entries, balances, roll-ups and webhooks of one commit.

Nothing here decides and nothing talks to the database: `batch` says what has happened, `engine`
writes what was collected.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cardledger.ledger.core.card_transaction import Decision, Status
from cardledger.ledger.core.entries import Account as Role
from cardledger.ledger.core.entries import Entry, entries
from cardledger.ledger.core.money import checked
from cardledger.ledger.engine.records import (
    Account,
    Card,
    CardTransactionKey,
    DepositRecord,
    EntryRecord,
    EventRecord,
    Key,
    OutboxRecord,
    OutcomeRow,
    Parked,
    PendingPull,
    RejectionRecord,
)
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections.card_transaction import RollUp, advance
from cardledger.ledger.projections.event_rows import to_row
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id

_CUSTOMER: Final = Role.CUSTOMER
_TOLD_AS: Final = {status: f"CARD_TRANSACTION.{status}" for status in Status}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSnapshot:
    """What the database holds about the messages of a batch, their accounts locked."""

    outcomes: Mapping[Key, OutcomeRow] = field(default_factory=dict)
    cards: Mapping[Id, Card] = field(default_factory=dict)
    accounts: Mapping[Id, Account] = field(default_factory=dict)
    roll_ups: Iterable[RollUp] = ()
    debts: Sequence[RollUp] = ()
    parked: Mapping[CardTransactionKey, Sequence[Parked]] = field(default_factory=dict)
    # The accounts of platforms, by platform, currency and kind.
    system_accounts: Mapping[tuple[Id, str, str], Id] = field(default_factory=dict)
    transfers: Mapping[Id, Transfer] = field(default_factory=dict)
    # What platforms call the customers that get a deposit.
    names: Mapping[Id, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class CardTransactionContext:
    """A card transaction while a batch works on it; its place in a batch is its identity."""

    purchase: CardTransactionKey
    account: Account
    roll_up: RollUp
    is_new: bool
    is_changed: bool = False


@dataclass(slots=True)
class PendingWrites:
    """Everything that one commit appends or changes."""

    events: list[EventRecord] = field(default_factory=list)
    entries: list[EntryRecord] = field(default_factory=list)
    deposits: list[DepositRecord] = field(default_factory=list)
    transfers: dict[Id, Transfer] = field(default_factory=dict)
    outcomes: list[OutcomeRow] = field(default_factory=list)
    rejections: list[RejectionRecord] = field(default_factory=list)
    outbox: list[OutboxRecord] = field(default_factory=list)
    follow_ups: list[Message] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    unparked: list[tuple[CardTransactionKey, Id]] = field(default_factory=list)
    pending_pulls: list[PendingPull] = field(default_factory=list)
    cases: list[CardTransactionContext] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)

    @property
    def size(self) -> int:
        """How much has been collected: it tells whether a message left any trace."""
        return len(self.events) + len(self.entries) + len(self.deposits) + len(self.transfers)


class ChangeSet:
    """The card transactions and accounts of a batch, and what has happened to them in it."""

    def __init__(self, loaded: BatchSnapshot, *, now: datetime) -> None:
        """Start from `loaded`; everything is recorded at `now`."""
        self.writes: Final = PendingWrites()
        self._loaded: Final = loaded
        self._now: Final = now
        self._cases: Final[dict[CardTransactionKey, CardTransactionContext]] = {}
        self._owing: Final[dict[Id, set[CardTransactionContext]]] = {}
        for roll_up in (*loaded.roll_ups, *loaded.debts):
            self._load(roll_up)

    def _load(self, roll_up: RollUp) -> None:
        who = roll_up.identity
        purchase = CardTransactionKey(who.customer_id, who.card_id, who.issuer_transaction_token)
        if purchase not in self._cases:
            case = CardTransactionContext(
                purchase, self._loaded.accounts[who.account_id], roll_up, is_new=False
            )
            self._cases[purchase] = case
            self._note_debt(case)

    def __iter__(self) -> Iterator[CardTransactionContext]:
        """Yield every card transaction that is known."""
        yield from self._cases.values()

    def case(self, purchase: CardTransactionKey) -> CardTransactionContext | None:
        """Return the card transaction of `purchase`; None: nothing has been recorded of it."""
        return self._cases.get(purchase)

    def owing(self, account: Account) -> Collection[CardTransactionContext]:
        """Return which card transactions wait for money on `account`."""
        return self._owing.get(account.id, ()) if self._owing else ()

    def record(
        self,
        case: CardTransactionContext,
        before: RollUp,
        decision: Decision,
        *,
        message_id: Id,
        occurred_at: datetime,
    ) -> None:
        """Record a decision, which one message has caused, about `case`, which stood at `before`.

        Raises: AmountOutOfRangeError when a total would not fit; nothing was recorded.
        """
        account, now = case.account, self._now
        facts, state = decision.facts, decision.after
        # Before anything is changed: a message that cannot be recorded must leave no trace.
        after = advance(before, facts, state, message_id=message_id, recorded_at=now)
        was_held, was_owed, was_pending = before.state.dues
        held, owed, pending = state.dues
        held = checked(account.held + held - was_held)
        owed = checked(account.owed + owed - was_owed)
        pending = checked(account.pending + pending - was_pending)
        movements = [(fact, entries(fact)) for fact in facts]
        change = 0
        for _, booked in movements:
            for entry in booked:
                change += _change(entry)
        checked(account.balance + change + held)  # What is held can always go back.
        account.held, account.owed, account.pending = held, owed, pending
        self._change_account(account)
        case_id, sequence = before.identity.id, before.state.sequence
        for fact, booked in movements:
            sequence += 1
            kind, amount, unfunded, final, reason = to_row(fact)
            self.writes.events.append(
                (
                    case_id,
                    sequence,
                    account.customer_id,
                    kind,
                    amount,
                    unfunded,
                    final,
                    reason,
                    message_id,
                    occurred_at,
                    now,
                )
            )
            if booked:
                self.book(account, booked, subject_id=case_id, sequence=sequence)
        self._keep(case, after)

    def book(
        self,
        account: Account,
        movements: Iterable[Entry],
        *,
        subject_id: Id,
        sequence: int,
        line: int = 0,
    ) -> None:
        """Append `movements` from `line` on; the customer's side moves the balance of `account`."""
        for place, entry in enumerate(movements, start=line):
            # First: where there is no such account, nothing has been changed yet.
            debit = self._account_id(entry.debit, account)
            credit = self._account_id(entry.credit, account)
            change = _change(entry)
            if change:
                account.balance += change
                account.version += 1
                account.has_moved = True
            self.writes.entries.append(
                (
                    subject_id,
                    sequence,
                    place,
                    account.customer_id,
                    debit,
                    credit,
                    entry.amount,
                    account.id if change else None,
                    account.version if change else None,
                    account.balance if change else None,
                    self._now,
                )
            )
        self._change_account(account)

    def emit(  # noqa: PLR0913, PLR0917 - the columns of an outbox row
        self,
        kind: str,
        subject_id: Id,
        customer_id: Id,
        platform_id: Id,
        sequence: int | None,
        data: str | None = None,
    ) -> None:
        """Have a webhook of `kind` sent; `data` is its JSON unless it can be folded later."""
        self.writes.outbox.append(
            (new_id(), customer_id, platform_id, kind, subject_id, sequence, data, self._now)
        )

    def _keep(self, case: CardTransactionContext, after: RollUp) -> None:
        case.roll_up = after
        if not case.is_changed:
            case.is_changed = True
            self.writes.cases.append(case)
            if case.is_new:
                self._cases[case.purchase] = case
        self._note_debt(case)
        who, state = after.identity, after.state
        self.emit(_TOLD_AS[state.status], who.id, who.customer_id, who.platform_id, state.sequence)

    def _change_account(self, account: Account) -> None:
        if not account.is_changed:
            account.is_changed = True
            self.writes.accounts.append(account)

    def _note_debt(self, case: CardTransactionContext) -> None:
        """Know which card transactions have something to pay, without looking at all of them."""
        if case.roll_up.debt_since:
            self._owing.setdefault(case.account.id, set()).add(case)
        elif self._owing and (owing := self._owing.get(case.account.id)):
            owing.discard(case)

    def _account_id(self, role: Role, account: Account) -> Id:
        if role is _CUSTOMER:
            return account.id
        return self._loaded.system_accounts[account.platform_id, account.currency, role]


def _change(entry: Entry) -> int:
    """Return what `entry` does to the balance of the customer's account."""
    if entry.credit is _CUSTOMER:
        return entry.amount
    return -entry.amount if entry.debit is _CUSTOMER else 0
