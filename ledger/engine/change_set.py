"""What events leave behind: rows, entries, balances, roll-ups and webhooks of one commit.

Nothing here decides and nothing talks to the database: `decisions` records events, `commit` writes
what was collected.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from pydantic_core import to_json

from cardledger.ledger.books.business_days import Calendars
from cardledger.ledger.books.posting import Movement, PostingDays
from cardledger.ledger.core.card_transaction import Decision
from cardledger.ledger.core.entries import ChartAccount, Entry, entries
from cardledger.ledger.core.money import checked
from cardledger.ledger.core.status import Status
from cardledger.ledger.engine.parsing import (
    RejectedError,
    conversion_of,
    occurred_at,
    settlement_of,
)
from cardledger.ledger.engine.records import (
    Card,
    CardTransactionKey,
    Closing,
    ClosingPage,
    ConversionRecord,
    Dates,
    DebtPage,
    DepositRecord,
    EntryRecord,
    EventRecord,
    Key,
    LateHistory,
    LockedAccount,
    OutboxRecord,
    OutcomeRow,
    Parked,
    PaymentEventRecord,
    PendingPull,
    RejectionRecord,
    SettlementRecord,
    SuspenseItem,
)
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections.adjustments import Adjustment
from cardledger.ledger.projections.card_transaction import (
    Conversion,
    Identity,
    RollUp,
    advance,
    wire,
)
from cardledger.ledger.projections.event_rows import to_row
from cardledger.ledger.projections.settlement_bookings import SettlementBooking
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.settlement import Settlement

_CUSTOMER: Final = ChartAccount.CUSTOMER
# So many events are folded for a webhook of a card transaction at most. Hardly any has more; of one
# that has, each dispatch would fold all of them again.
_FOLDED_UP_TO: Final = 100
_WEBHOOK_TYPES: Final = {status: f"CARD_TRANSACTION.{status}" for status in Status}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSnapshot:
    """What the database holds about the messages of a batch; their accounts are locked."""

    outcomes: Mapping[Key, OutcomeRow] = field(default_factory=dict)
    # Keys of timeout reversals, decided or not, of authorizations among its messages.
    reversals: AbstractSet[Key] = frozenset()
    cards: Mapping[Id, Card] = field(default_factory=dict)
    accounts: Mapping[Id, LockedAccount] = field(default_factory=dict)
    roll_ups: Iterable[RollUp] = ()
    closing_pages: Mapping[Closing, ClosingPage] = field(default_factory=dict)
    debts: Mapping[Id, DebtPage] = field(default_factory=dict)  # By account.
    parked: Mapping[CardTransactionKey, Sequence[Parked]] = field(default_factory=dict)
    # By platform, currency and kind.
    system_accounts: Mapping[tuple[Id, str, str], Id] = field(default_factory=dict)
    transfers: Mapping[Id, Transfer] = field(default_factory=dict)
    adjustments: Mapping[Id, Adjustment] = field(default_factory=dict)
    settlement_bookings: Mapping[Id, SettlementBooking] = field(default_factory=dict)
    # By card transaction, where the batch has timeout reversals.
    late_histories: Mapping[Id, LateHistory] = field(default_factory=dict)
    # Of the customers that get a deposit.
    platform_customer_ids: Mapping[Id, str] = field(default_factory=dict)
    suspense_items: Sequence[SuspenseItem] = ()  # Open, of its keys and parked messages.
    calendars: Calendars = field(default_factory=Calendars)
    first_open_day: date = date.min

    def accounts_used_by(self, customers: AbstractSet[Id]) -> set[Id]:
        """Return the accounts that what was read about `customers` is on.

        Cards of others are left out: messages about them are rejected.
        """
        used = {card.account_id for card in self.cards.values() if card.customer_id in customers}
        used.update(self.debts)
        for roll_up in self.roll_ups:
            used.add(roll_up.identity.account_id)
        for transfer in self.transfers.values():
            used |= transfer.own_accounts
        return used


@dataclass(slots=True, eq=False)
class CardTransactionContext:
    """A card transaction while a batch works on it; compared by identity."""

    key: CardTransactionKey
    account: LockedAccount
    roll_up: RollUp
    is_new: bool
    is_changed: bool = False


@dataclass(slots=True)
class PendingWrites:
    """Everything that one commit appends or changes."""

    events: list[EventRecord] = field(default_factory=list)
    entries: list[EntryRecord] = field(default_factory=list)
    settlements: list[SettlementRecord] = field(default_factory=list)
    conversions: list[ConversionRecord] = field(default_factory=list)
    suspended: list[SuspenseItem] = field(default_factory=list)
    resolved: list[SuspenseItem] = field(default_factory=list)  # Of those that were loaded.
    deposits: list[DepositRecord] = field(default_factory=list)
    transfers: dict[Id, Transfer] = field(default_factory=dict)  # Between two accounts.
    payments: dict[Id, Transfer] = field(default_factory=dict)
    arrived: dict[Id, Transfer] = field(default_factory=dict)  # Payments without a row so far.
    payment_events: list[PaymentEventRecord] = field(default_factory=list)
    adjustments: dict[Id, Adjustment] = field(default_factory=dict)
    settlement_bookings: dict[Id, SettlementBooking] = field(default_factory=dict)
    outcomes: list[OutcomeRow] = field(default_factory=list)
    rejections: list[RejectionRecord] = field(default_factory=list)
    duplicates: list[Id] = field(default_factory=list)
    outbox: list[OutboxRecord] = field(default_factory=list)
    follow_ups: list[Message] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    unparked: list[tuple[CardTransactionKey, Id]] = field(default_factory=list)
    pending_pulls: list[PendingPull] = field(default_factory=list)
    card_transactions: list[CardTransactionContext] = field(default_factory=list)
    # Of `card_transactions`, those of which an amount is or was written off.
    written_off: set[CardTransactionContext] = field(default_factory=set)
    # Of `card_transactions`, those with an authorization of a credit.
    credits: set[CardTransactionContext] = field(default_factory=set)
    # Of `card_transactions`, those with a conversion.
    converted: set[CardTransactionContext] = field(default_factory=set)
    accounts: list[LockedAccount] = field(default_factory=list)
    webhook_id: Callable[[], Id] = new_id  # Makes the next one.

    @property
    def size(self) -> int:
        """How much has been collected: whether a message was applied, if only in part."""
        records = len(self.events) + len(self.entries) + len(self.deposits) + len(self.transfers)
        return records + len(self.payments) + len(self.arrived)


class ChangeSet:
    """The card transactions and accounts of a batch, and how the batch has changed them."""

    def __init__(self, snapshot: BatchSnapshot, *, now: datetime) -> None:
        """Start from `snapshot`; everything is recorded at `now`."""
        self.snapshot: Final = snapshot
        self.now: Final = now
        self.writes: Final = PendingWrites()
        self._days: Final = PostingDays(
            snapshot.calendars, recorded_at=now, first_open_day=snapshot.first_open_day
        )
        self._dated: tuple[Message | Parked, Dates] | None = None  # The latest message.
        self._contexts: Final[dict[CardTransactionKey, CardTransactionContext]] = {}
        # By account: which of its card transactions have something to pay.
        self._indebted: Final[dict[Id, set[CardTransactionContext]]] = {}
        # By account that has more than were loaded: those that were, and have been debts since.
        self._oldest_debts: Final[dict[Id, set[Id]]] = {}
        for roll_up in snapshot.roll_ups:
            self._load(roll_up)
        for account_id, page in snapshot.debts.items():
            for roll_up in page.roll_ups:
                self._load(roll_up)
            if not page.is_whole:
                self._oldest_debts[account_id] = {each.identity.id for each in page.roll_ups}

    def _load(self, roll_up: RollUp) -> None:
        identity = roll_up.identity
        key = identity.key
        if key not in self._contexts:
            account = self.snapshot.accounts[identity.account_id]
            context = CardTransactionContext(key, account, roll_up, is_new=False)
            self._contexts[key] = context
            self._index_debt(context)

    def card_transactions(self) -> Collection[CardTransactionContext]:
        """Return the card transactions that were loaded or opened."""
        return self._contexts.values()

    def card_transaction(self, key: CardTransactionKey) -> CardTransactionContext | None:
        """Return the card transaction of `key`; None when it has no events."""
        return self._contexts.get(key)

    def indebted(self, account: LockedAccount) -> Collection[CardTransactionContext]:
        """Return the card transactions that have something to pay from `account`."""
        return self._indebted.get(account.id, ()) if self._indebted else ()

    def oldest_debts(self, account: LockedAccount) -> AbstractSet[Id] | None:
        """Return the card transactions that are first in a queue that was not loaded to its end.

        None where it was, so that `indebted` is all of it.
        """
        return self._oldest_debts.get(account.id) if self._oldest_debts else None

    def dates_of(self, message: Message | Parked) -> Dates:
        """Return the dates of all that `message` causes.

        Raises: RejectedError for an invalid timestamp or invalid settlement details.
        """
        if self._dated is not None and self._dated[0] is message:
            return self._dated[1]
        moment, settlement = occurred_at(message), settlement_of(message.body)
        if settlement is None:
            day, late_from = self._days.of_books(moment)
        else:
            day, late_from = self._days.of(
                Movement(
                    occurred_at=moment,
                    network=settlement.network,
                    settlement_date=settlement.settlement_date,
                )
            )
        dates = Dates(moment, day, settlement, late_from)
        if "conversion" in message.body:
            dates.conversion = conversion_of(message.body)
        self._dated = (message, dates)
        return dates

    def dates_by_time(self, message: Message | Parked) -> Dates:
        """Return the dates of `message` without what it says about its settlement.

        A time that cannot be read is that of the recording.
        """
        try:
            moment = occurred_at(message)
        except RejectedError:
            moment = self.now
        day, late_from = self._days.of_books(moment)
        return Dates(moment, day, None, late_from)

    def dates_on(self, day: date, *, network: str | None) -> Dates:
        """Return the dates of what happens now and counts on `day`, a business day of `network`."""
        movement = Movement(occurred_at=self.now, network=network, settlement_date=day)
        posted_on, late_from = self._days.of(movement)
        return Dates(self.now, posted_on, None, late_from)

    def record(
        self,
        context: CardTransactionContext,
        before: RollUp,
        decision: Decision,
        *,
        message_id: Id,
        dates: Dates,
    ) -> None:
        """Record a decision that one message has caused about `context`, whose state was `before`.

        Raises: AmountOutOfRangeError when a total would not fit; nothing was recorded.
        """
        account, now = context.account, self.now
        facts, state = decision.facts, decision.after
        # Before anything is changed: a message that cannot be recorded must change nothing.
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
        checked(account.balance + change + held)  # Room to release every hold.
        account.held, account.owed, account.pending = held, owed, pending
        self._change_account(account)
        card_transaction_id, sequence = before.identity.id, before.state.sequence
        occurred = dates.occurred_at
        for fact, booked in movements:
            sequence += 1
            kind, amount, unfunded, final, reason = to_row(fact)
            self.writes.events.append(
                (
                    card_transaction_id,
                    sequence,
                    account.customer_id,
                    kind,
                    amount,
                    unfunded,
                    final,
                    reason,
                    message_id,
                    occurred,
                    now,
                )
            )
            if booked:
                self.book(account, booked, dates, subject_id=card_transaction_id, sequence=sequence)
        self._update(context, after)
        if state.written_off or before.state.written_off:
            self.writes.written_off.add(context)
        if state.credit_authorized is not None:
            self.writes.credits.add(context)
        if after.conversion is not None:
            self.writes.converted.add(context)

    def book(  # noqa: PLR0913 - the columns of an entry
        self,
        account: LockedAccount,
        movements: Iterable[Entry],
        dates: Dates,
        *,
        subject_id: Id,
        sequence: int,
        line: int = 0,
    ) -> None:
        """Append `movements` from `line` on, and change the balance of `account` by its side."""
        occurred, posted_on, late_from = dates.occurred_at, dates.posted_on, dates.late_from
        for place, entry in enumerate(movements, start=line):
            # First: when there is no such account, nothing has been changed yet.
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
                    self.now,
                    occurred,
                    posted_on,
                    late_from,
                )
            )
        self._change_account(account)

    def book_system(  # noqa: PLR0913 - the columns of an entry
        self,
        subject_id: Id,
        sequence: int,
        booked: Sequence[Entry],
        *,
        customer_id: Id,
        platform_id: Id,
        currency: str,
        dates: Dates,
        line: int = 0,
    ) -> None:
        """Append entries between two system accounts of a platform and a currency from `line`."""
        accounts = self.snapshot.system_accounts
        for place, entry in enumerate(booked, start=line):
            self.writes.entries.append(
                (
                    subject_id,
                    sequence,
                    place,
                    customer_id,
                    accounts[platform_id, currency, entry.debit],
                    accounts[platform_id, currency, entry.credit],
                    entry.amount,
                    None,
                    None,
                    None,
                    self.now,
                    dates.occurred_at,
                    dates.posted_on,
                    dates.late_from,
                )
            )

    def keep_settlement(
        self, settlement: Settlement, of: Identity, *, sequence: int, message_id: Id
    ) -> None:
        """Append what a message says about how the network settles its first event, `sequence`."""
        amount, interchange = settlement.merchant_amount, settlement.interchange
        self.writes.settlements.append(
            (
                of.id,
                sequence,
                of.customer_id,
                of.platform_id,
                message_id,
                settlement.network,
                settlement.institution_id,
                settlement.settlement_date,
                settlement.cycle,
                settlement.acquirer_reference,
                settlement.network_reference,
                None if amount is None else amount.amount,
                None if amount is None else amount.currency,
                None if interchange is None else Decimal(interchange),
                settlement.fee_program,
                self.now,
            )
        )

    def keep_conversion(
        self, conversion: Conversion, of: Identity, *, sequence: int, message_id: Id
    ) -> None:
        """Append how the network converted the amount of a message; as `keep_settlement`."""
        self.writes.conversions.append(
            (
                of.id,
                sequence,
                of.customer_id,
                of.platform_id,
                message_id,
                conversion.merchant_amount,
                conversion.merchant_currency,
                conversion.billing_amount,
                conversion.rate,
                self.now,
            )
        )

    def emit(  # noqa: PLR0913, PLR0917 - the columns of an outbox row
        self,
        kind: str,
        subject_id: Id,
        customer_id: Id,
        platform_id: Id,
        sequence: int | None,
        data: str | None = None,
    ) -> None:
        """Append a webhook of `kind` to the outbox.

        `data` is its JSON; None for a card transaction, which is folded when it is dispatched.
        """
        row = (self.writes.webhook_id(), customer_id, platform_id, kind, subject_id, sequence, data)
        self.writes.outbox.append((*row, self.now))

    def _update(self, context: CardTransactionContext, after: RollUp) -> None:
        context.roll_up = after
        if not context.is_changed:
            context.is_changed = True
            self.writes.card_transactions.append(context)
            if context.is_new:
                self._contexts[context.key] = context
        self._index_debt(context)
        identity, state = after.identity, after.state
        self.emit(
            _WEBHOOK_TYPES[state.status],
            identity.id,
            identity.customer_id,
            identity.platform_id,
            state.sequence,
            to_json(wire(after)).decode() if state.sequence > _FOLDED_UP_TO else None,
        )

    def _change_account(self, account: LockedAccount) -> None:
        if not account.is_changed:
            account.is_changed = True
            self.writes.accounts.append(account)

    def _index_debt(self, context: CardTransactionContext) -> None:
        if context.roll_up.debt_since:
            self._indebted.setdefault(context.account.id, set()).add(context)
        elif self._indebted and (indebted := self._indebted.get(context.account.id)):
            indebted.discard(context)
            if oldest := self._oldest_debts.get(context.account.id):
                oldest.discard(context.roll_up.identity.id)  # A new debt of it is younger.

    def _account_id(self, role: ChartAccount, account: LockedAccount) -> Id:
        if role is _CUSTOMER:
            return account.id
        return self.snapshot.system_accounts[account.platform_id, account.currency, role]


def _change(entry: Entry) -> int:
    """Return by how much `entry` changes the balance of the customer's account."""
    if entry.credit is _CUSTOMER:
        return entry.amount
    return -entry.amount if entry.debit is _CUSTOMER else 0
