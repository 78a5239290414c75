"""One batch in memory: decide messages in order, each seeing what its predecessors left.

Nothing here talks to the database. `engine` loads a `Batch`, lets it decide and writes what it
collected; the rules are those of `ledger.core`.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from json import dumps
from typing import Any, Final, NamedTuple
from uuid import UUID

from ledger import accounts, inbox, payments
from ledger.core import commands, sandbox, transfer
from ledger.core.card_transaction import CardTransaction, Closure, decide, waits
from ledger.core.entries import Account as Role
from ledger.core.entries import Entry, deposit_entry, entries, transfer_entries
from ledger.core.events import (
    Declined,
    Event,
    PullFailed,
    PullPending,
    PullResized,
    Refunded,
    Released,
)
from ledger.core.money import MAX_AMOUNT, AmountOutOfRangeError, checked
from ledger.event_rows import to_row
from ledger.ids import new_id
from ledger.inbox import Message
from ledger.payments import Transfer
from ledger.roll_up import Identity, RollUp, advance, opened
from ledger.store import (
    MANY_DEBTS,
    Account,
    Card,
    DepositRecord,
    EntryRecord,
    EventRecord,
    Key,
    OutboxRecord,
    OutcomeRow,
    Parked,
    PendingPull,
    Purchase,
    RejectionRecord,
)
from schema.wire.network_events import EventType, parse_time
from schema.wire.outcomes import OutcomeType, RejectionReason, Remark
from schema.wire.webhooks import WebhookType

_FREES_MONEY: Final = frozenset({Released, Refunded, PullResized})

_SELF: Final = "engine"  # Source of the messages that it sends to itself.

_SystemAccounts = Mapping[tuple[UUID, str, str], UUID]


class RejectedError(Exception):
    """A message that cannot be understood or applied; it is kept with its reason."""

    def __init__(self, reason: RejectionReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Decided(NamedTuple):
    """What became of one message; `roll_up` is its card transaction after it."""

    message: Message
    outcome: OutcomeType
    reason: str | None = None
    detail: str | None = None
    first_outcome: OutcomeType | None = None
    roll_up: RollUp | None = None


@dataclass(slots=True)
class Writes:
    """Everything that one commit appends or changes."""

    events: list[EventRecord] = field(default_factory=list)
    entries: list[EntryRecord] = field(default_factory=list)
    deposits: list[DepositRecord] = field(default_factory=list)
    transfers: dict[UUID, Transfer] = field(default_factory=dict)
    outcomes: dict[Key, OutcomeRow] = field(default_factory=dict)
    rejections: list[RejectionRecord] = field(default_factory=list)
    outbox: list[OutboxRecord] = field(default_factory=list)
    follow_ups: list[Message] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    unparked: list[tuple[Purchase, UUID]] = field(default_factory=list)
    pending_pulls: list[PendingPull] = field(default_factory=list)
    roll_ups: dict[Purchase, RollUp] = field(default_factory=dict)
    accounts: dict[UUID, Account] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How much has been collected: it tells whether a message left any trace."""
        return len(self.events) + len(self.entries) + len(self.deposits) + len(self.transfers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the database holds about the messages of a batch, their accounts locked."""

    outcomes: Mapping[Key, OutcomeRow] = field(default_factory=dict)
    cards: Mapping[UUID, Card] = field(default_factory=dict)
    accounts: Mapping[UUID, Account] = field(default_factory=dict)
    roll_ups: Iterable[RollUp] = ()
    debts: Sequence[RollUp] = ()
    parked: Mapping[Purchase, Sequence[Parked]] = field(default_factory=dict)
    system_accounts: _SystemAccounts = field(default_factory=dict)
    transfers: Mapping[UUID, Transfer] = field(default_factory=dict)
    # What platforms call the customers that get a deposit.
    names: Mapping[UUID, str] = field(default_factory=dict)


class Batch:
    """Decides messages one after the other and collects what has to be written.

    A message either leaves all its traces or, when it is rejected, only its rejection.
    """

    def __init__(self, loaded: Loaded, *, now: datetime, sandbox_delay: timedelta | None) -> None:
        """Start from `loaded`; `now` is the moment of every decision.

        `sandbox_delay` is how long the sandbox's slow answers take; None outside the sandbox.
        """
        self.writes: Final = Writes()
        self.known: Final = {
            purchase_of(roll_up): roll_up for roll_up in [*loaded.roll_ups, *loaded.debts]
        }
        self.existing: Final = frozenset(self.known)
        self.first_deadline: datetime | None = None  # Of the approvals given.
        self._loaded: Final = loaded
        self._parked: Final = {purchase: [*rows] for purchase, rows in loaded.parked.items()}
        self._owing: Final[dict[UUID, set[Purchase]]] = {}
        for purchase, roll_up in self.known.items():
            self._note_debt(purchase, roll_up)
        self._now: Final = now
        self._sandbox_delay: Final = sandbox_delay

    def decide(self, messages: Iterable[Message]) -> list[Decided]:
        """Return what became of `messages`, in their order."""
        decided = [self._decide(message) for message in messages]
        self._tell_balances()
        return decided

    def _decide(self, message: Message) -> Decided:
        key = Key(message.reference, message.source, message.platform_id, message.customer_id)
        size = self.writes.size
        try:
            first = self._loaded.outcomes.get(key) or self.writes.outcomes.get(key)
            if first:
                return self._repeat(message, first)
            decided = self._handle(message)
        except (RejectedError, KeyError, TypeError, ValueError, AttributeError) as error:
            if self.writes.size != size:
                raise  # Half done is our fault: the whole batch must go.
            return self._reject(message, _refusal(error))
        self.writes.outcomes[key] = OutcomeRow(
            key=key,
            body_hash=message.body_hash,
            message_id=message.id,
            outcome=decided.outcome,
            reason=decided.reason,
            subject_id=decided.roll_up.identity.id if decided.roll_up else None,
            sequence=decided.roll_up.state.sequence if decided.roll_up else None,
        )
        return decided

    def _repeat(self, message: Message, first: OutcomeRow) -> Decided:
        if first.body_hash != message.body_hash:
            raise RejectedError(
                RejectionReason.KEY_REUSED,
                "another event came with this source and reference; use a new reference",
            )
        return Decided(
            message,
            OutcomeType.DUPLICATE,
            reason=first.reason,
            first_outcome=OutcomeType(first.outcome),
            roll_up=(
                self.known.get(_purchase(message))
                if "issuerTransactionToken" in message.body
                else None
            ),
        )

    def _reject(self, message: Message, refusal: RejectedError) -> Decided:
        self.writes.rejections.append(
            rejection_of(message, refusal.reason, refusal.detail, self._now)
        )
        self.give_up([message])
        return Decided(message, OutcomeType.REJECTED, reason=refusal.reason, detail=refusal.detail)

    def give_up(self, messages: Iterable[Message]) -> None:
        """Let the transfers fail that `messages`, which are rejected, were to carry out.

        Nobody is left who would: whoever asked must not wait for ever.
        """
        for key, customer_id in transfers_of(messages):
            wanted = self._in_progress(key, customer_id)
            if wanted is not None:
                self._end(wanted.failed(transfer.FailureReason.INTERNAL_ERROR, at=self._now))

    # --- network events --------------------------------------------------------------------

    def _handle(self, message: Message) -> Decided:
        match message.body["type"]:
            case inbox.DEPOSIT:
                return self._deposit(message)
            case inbox.TRANSFER:
                return self._transfer(message)
            case inbox.CARD_CLOSED:
                return self._close_card(message)
            case inbox.RECOVERY:
                return self._go_on_recovering(message)
            case (
                EventType.AUTHORIZATION
                | EventType.AUTHORIZATION_INCREMENT
                | EventType.FINANCIAL_AUTHORIZATION
            ):
                return self._authorize(message)
            case _:
                return self._record(message)

    def _authorize(self, message: Message) -> Decided:
        card, roll_up, account = self._concerned(message)
        body = message.body
        named = _named(roll_up, body)
        decide_by = parse_time(body.get("decideBy"))
        descriptor = self._descriptor(roll_up, body)
        command = commands.Authorize(
            amount=_amount(body),
            balance=account.balance,
            owed=account.owed,
            card_state=card.state,
            account_usable=account.status == accounts.ACTIVE,
            max_spend=card.max_spend,
            forced_decline=sandbox.forced_decline(descriptor),
            decided_at=self._now,
            decide_by=decide_by,
            confirms_later=sandbox.confirms_later(descriptor),
            clears=body["type"] == EventType.FINANCIAL_AUTHORIZATION,
        )
        facts = decide(roll_up.state, command)
        first = facts[0]
        # Only an approval names the merchant: it also starts the time that his category gives.
        before = roll_up if isinstance(first, Declined) else named
        after = self._unpark(self._apply(message, before, account, facts), account)
        if isinstance(first, Declined):
            return Decided(message, OutcomeType.DECLINED, reason=first.reason, roll_up=after)
        if decide_by and (self.first_deadline is None or decide_by < self.first_deadline):
            self.first_deadline = decide_by
        return Decided(message, OutcomeType.APPLIED, roll_up=after)

    def _record(self, message: Message) -> Decided:
        """Record what has happened at the network: it cannot be refused."""
        _, roll_up, account = self._concerned(message)
        command = self._command(message.body, roll_up, account)
        if waits(roll_up.state, command) and "expiresAt" not in message.body:
            return self._park(message, roll_up)  # The schedule speaks of what it has seen.
        known = roll_up if roll_up.state.sequence else None
        if _is_outdated(message, roll_up):
            return Decided(message, OutcomeType.IGNORED, reason=Remark.EXTENDED, roll_up=known)
        facts = decide(roll_up.state, command)
        if not facts:
            return Decided(message, OutcomeType.IGNORED, reason=_idle(command), roll_up=known)
        after = self._unpark(self._apply(message, roll_up, account, facts), account)
        remark = _remark(roll_up.state, command)
        return Decided(message, OutcomeType.APPLIED, reason=remark, roll_up=after)

    def _command(
        self, body: Mapping[str, Any], roll_up: RollUp, account: Account
    ) -> commands.Command:
        """Return what `body` asks of its card transaction."""
        balance = self._pullable(account, roll_up.identity)
        match body["type"]:
            case EventType.CLEARING:
                return commands.Clear(
                    amount=_amount(body), final=body.get("final"), balance=balance
                )
            case EventType.CLEARING_REVERSAL:
                return commands.ReverseClearing(amount=_amount(body))
            case EventType.RETURN:
                return commands.Refund(amount=_amount(body))
            case EventType.RETURN_REVERSAL:
                return commands.ReverseRefund(amount=_amount(body), balance=balance)
            case EventType.STAND_IN_AUTHORIZATION:
                return commands.StandIn(amount=_amount(body), balance=balance)
            case EventType.AUTHORIZATION_ADVICE:
                return commands.Advise(total=_amount(body, least=0), balance=balance)
            case EventType.AUTHORIZATION_REVERSAL:
                return commands.Reverse(amount=_amount(body) if "amount" in body else None)
            case EventType.AUTHORIZATION_EXPIRY:
                return commands.Expire()
            case inbox.PULL_CONFIRMATION:
                return commands.ConfirmPull(amount=_amount(body), succeeded=body["succeeded"])
        raise RejectedError(RejectionReason.MALFORMED, "type is not known")

    def _park(self, message: Message, roll_up: RollUp) -> Decided:
        parked = Parked(
            id=message.id,
            customer_id=message.customer_id,
            card_id=roll_up.identity.card_id,
            token=roll_up.identity.issuer_transaction_token,
            body=message.body,
            received_at=message.received_at,
        )
        self.writes.parked.append(parked)
        self._parked.setdefault(parked.purchase, []).append(parked)
        known = roll_up if roll_up.state.sequence else None
        return Decided(message, OutcomeType.PARKED, reason=Remark.WAITS, roll_up=known)

    def _unpark(self, after: RollUp, account: Account) -> RollUp:
        """Apply what waited for the facts that have just arrived; each may free another."""
        purchase = purchase_of(after)
        waiting = self._parked.get(purchase, [])
        for parked in list(waiting):
            command = self._command(parked.body, after, account)
            if waits(after.state, command):
                continue
            try:
                facts = decide(after.state, command)
                after = self._apply(parked, after, account, facts) if facts else after
            except AmountOutOfRangeError:
                continue  # A total is at the end of its range: it goes on waiting.
            waiting.remove(parked)
            self.writes.unparked.append((purchase, parked.id))
        return after

    def _close_card(self, message: Message) -> Decided:
        """Give back what is held for the card transactions of a card that was closed."""
        card_id = _card_id(message.body["cardId"])
        # In the order in which they were opened, whatever the order in which they were loaded.
        for purchase in sorted(self.known, key=lambda one: self.known[one].identity.id):
            roll_up = self.known[purchase]  # A release for another may have paid its open pull.
            if roll_up.identity.card_id == card_id:
                account = self._loaded.accounts[roll_up.identity.account_id]
                facts = decide(roll_up.state, commands.Cancel())
                if facts:
                    self._apply(message, roll_up, account, facts)
        return Decided(message, OutcomeType.APPLIED)

    def _concerned(self, message: Message) -> tuple[Card, RollUp, Account]:
        """Return the card, the card transaction and the funding account of a network event."""
        body = message.body
        card = self._loaded.cards.get(_card_id(body["cardId"]))
        if card is None or card.customer_id != message.customer_id:
            raise RejectedError(RejectionReason.UNKNOWN_CARD, "cardId names no card of yours")
        if body["currency"] != card.currency:
            raise RejectedError(
                RejectionReason.INVALID_CURRENCY, f"the currency of this card is {card.currency}"
            )
        roll_up = self.known.get(_purchase(message)) or self._open(message, card)
        if body.get("expectedSequence", roll_up.state.sequence) != roll_up.state.sequence:
            raise RejectedError(
                RejectionReason.OUTDATED, "the card transaction has moved on; look at it again"
            )
        return card, roll_up, self._loaded.accounts[roll_up.identity.account_id]

    def _open(self, message: Message, card: Card) -> RollUp:
        merchant = message.body.get("merchant") or {}
        return opened(
            Identity(
                id=new_id(),
                customer_id=card.customer_id,
                platform_id=card.platform_id,
                platform_customer_id=card.platform_customer_id,
                card_id=card.id,
                account_id=card.account_id,
                issuer_transaction_token=message.body["issuerTransactionToken"],
                currency=card.currency,
                descriptor=merchant.get("descriptor"),
                mcc=merchant.get("mcc"),
                country=merchant.get("country"),
                created_at=self._now,
            )
        )

    def _descriptor(self, roll_up: RollUp, body: Mapping[str, Any]) -> str:
        """Return the descriptor whose suffix speaks to the sandbox; none outside of it."""
        if self._sandbox_delay is None:
            return ""
        merchant = body.get("merchant") or {}
        return roll_up.identity.descriptor or merchant.get("descriptor") or ""

    def _pullable(self, account: Account, who: Identity) -> int:
        """Return what a pull after a clearing may take from `account`."""
        refused = self._sandbox_delay is not None and sandbox.refuses_pull(who.descriptor or "")
        return 0 if refused or account.status != accounts.ACTIVE else account.balance

    # --- money that arrives ----------------------------------------------------------------

    def _deposit(self, message: Message) -> Decided:
        account = self._loaded.accounts.get(UUID(message.body["accountId"]))
        if account is None or account.customer_id != message.customer_id:
            raise RejectedError(
                RejectionReason.UNKNOWN_ACCOUNT, "accountId names no account of yours"
            )
        if account.status != accounts.ACTIVE:
            # It was when the money was sent: a customer may have been deleted in between.
            raise RejectedError(
                RejectionReason.ACCOUNT_NOT_ACTIVE,
                f"the account is {account.status}; only an ACTIVE account can be funded",
            )
        entry = deposit_entry(_amount(message.body))
        checked(account.balance + account.held + entry.amount)  # What is held can always go back.
        deposit = DepositRecord(
            id=new_id(),
            customer_id=account.customer_id,
            account_id=account.id,
            amount=entry.amount,
            message_id=message.id,
            recorded_at=self._now,
            platform_id=account.platform_id,
        )
        told = payments.incoming(
            payments.Deposit(
                id=deposit.id,
                customer_id=deposit.customer_id,
                account_id=deposit.account_id,
                amount=deposit.amount,
                recorded_at=deposit.recorded_at,
                currency=account.currency,
                platform_customer_id=self._loaded.names[account.customer_id],
            )
        )
        self.writes.deposits.append(deposit)
        self._book(account, [entry], subject_id=deposit.id, sequence=0)
        self._tell(
            WebhookType.INCOMING_PAYMENT_COMPLETED,
            deposit.id,
            deposit.customer_id,
            deposit.platform_id,
            None,
            told.wire(),
        )
        self._recover(message, account)
        return Decided(message, OutcomeType.APPLIED)

    # --- money between accounts of one customer ------------------------------------------------

    def _transfer(self, message: Message) -> Decided:
        """Carry a transfer out or let it fail; what it says stands in its row, not here."""
        key = UUID(message.body["transferId"])
        wanted = self._in_progress(key, message.customer_id)
        if wanted is None:
            raise RejectedError(
                RejectionReason.UNKNOWN_TRANSFER,
                "transferId names no transfer of yours that is to be carried out",
            )
        source = self._loaded.accounts[wanted.source_account_id]
        destination = self._loaded.accounts[wanted.destination_account_id]
        refused = transfer.refusal(wanted.amount, _funds(source), _funds(destination))
        if refused:
            self._end(wanted.failed(refused, at=self._now))
            return Decided(message, OutcomeType.DECLINED, reason=refused)
        out, into = transfer_entries(wanted.amount)
        self._book(source, [out], subject_id=key, sequence=0)
        self._book(destination, [into], subject_id=key, sequence=0, line=1)
        self._end(wanted.completed(at=self._now))
        self._recover(message, destination)
        return Decided(message, OutcomeType.APPLIED)

    def _in_progress(self, key: UUID, customer_id: UUID) -> Transfer | None:
        """Return the customer's transfer `key` if it is to be carried out."""
        wanted = self.writes.transfers.get(key) or self._loaded.transfers.get(key)
        if wanted is None or wanted.customer_id != customer_id:
            return None
        return wanted if wanted.status == payments.PROCESSING else None

    def _end(self, ended: Transfer) -> None:
        self.writes.transfers[ended.id] = ended
        self._tell(
            f"OUTGOING_PAYMENT.{ended.status}",
            ended.id,
            ended.customer_id,
            ended.platform_id,
            None,
            payments.outgoing(ended).wire(),
        )

    def _go_on_recovering(self, message: Message) -> Decided:
        self._recover(message, self._loaded.accounts[UUID(message.body["accountId"])])
        return Decided(message, OutcomeType.APPLIED)

    def _recover(
        self, message: Message | Parked, account: Account, *, ahead_of: Purchase | None = None
    ) -> None:
        """Try again what `account` has to pay, oldest first; the first that it cannot ends it."""
        owing = self._owing.get(account.id)
        if not owing:
            return
        loaded = [d for d in self._loaded.debts if d.identity.account_id == account.id]
        is_whole = len(loaded) < MANY_DEBTS
        mine = owing if is_whole else owing & {purchase_of(debt) for debt in loaded}
        queue = sorted(
            (now.debt_since, now.debt_id, purchase)
            for purchase in mine
            if (now := self.known[purchase]).debt_since
        )
        for _, _, purchase in queue:
            if purchase == ahead_of:
                return
            roll_up = self.known[purchase]
            facts = decide(roll_up.state, commands.Recover(balance=account.balance))
            if not facts:
                return
            try:
                after = self._apply(message, roll_up, account, facts)
            except AmountOutOfRangeError:
                return  # A total is at the end of its range: the pull stays open.
            if after.debt_id:
                return
        if not is_whole:
            self._follow_up(account)

    def _note_debt(self, purchase: Purchase, now: RollUp) -> None:
        """Know which card transactions have something to pay, without looking at all of them."""
        if now.debt_since:
            self._owing.setdefault(now.identity.account_id, set()).add(purchase)
        elif owing := self._owing.get(now.identity.account_id):
            owing.discard(purchase)

    def _follow_up(self, account: Account) -> None:
        """Have the rest of a long queue paid by a message of its own."""
        key = new_id()
        body = {
            "type": inbox.RECOVERY,
            "source": _SELF,
            "reference": str(key),
            "accountId": str(account.id),
        }
        home = inbox.Home(account.customer_id, account.platform_id)
        self.writes.follow_ups.append(
            inbox.address(body, home, lane=inbox.Lane.LIVE, reply_to=None, at=self._now)
        )

    # --- books -----------------------------------------------------------------------------

    def _apply(
        self, message: Message | Parked, before: RollUp, account: Account, facts: Sequence[Event]
    ) -> RollUp:
        """Record `facts` about one card transaction, with all that follows from them."""
        after = advance(before, facts, message_id=message.id, recorded_at=self._now)
        # Before anything is changed: a message that does not fit must leave no trace.
        occurred_at = parse_time(message.body.get("occurredAt")) or message.received_at
        held = checked(account.held + after.state.held - before.state.held)
        owed = checked(account.owed + after.state.owed - before.state.owed)
        pending = checked(account.pending + after.state.pending - before.state.pending)
        movements = [entries(fact) for fact in facts]
        change = sum([_change(entry) for booked in movements for entry in booked])
        checked(account.balance + change + max(held, 0))  # What is held can always go back.
        account.held, account.owed, account.pending = held, owed, pending
        first = before.state.sequence + 1
        for sequence, (fact, booked) in enumerate(zip(facts, movements, strict=True), start=first):
            self.writes.events.append(
                EventRecord(
                    card_transaction_id=before.identity.id,
                    sequence=sequence,
                    customer_id=before.identity.customer_id,
                    fact=to_row(fact),
                    message_id=message.id,
                    occurred_at=occurred_at,
                    recorded_at=self._now,
                )
            )
            self._book(account, booked, subject_id=before.identity.id, sequence=sequence)
            if isinstance(fact, PullPending):
                descriptor = self._descriptor(before, message.body)
                self._await_confirmation(before.identity, sequence, fact, descriptor)
        self._keep(after)
        kinds = {type(fact) for fact in facts}
        if not kinds.isdisjoint(_FREES_MONEY):
            self._recover(message, account)
        elif PullFailed in kinds:
            # What it gives back is what it could not pay, but older debts may have it.
            self._recover(message, account, ahead_of=purchase_of(after))
        return self.known[purchase_of(after)]  # Its own open pull may have been paid.

    def _await_confirmation(
        self, who: Identity, sequence: int, pull: PullPending, descriptor: str
    ) -> None:
        assert self._sandbox_delay is not None, "only the sandbox answers late"
        self.writes.pending_pulls.append(
            PendingPull(
                card_transaction_id=who.id,
                sequence=sequence,
                customer_id=who.customer_id,
                card_id=who.card_id,
                token=who.issuer_transaction_token,
                amount=pull.amount,
                succeeds=sandbox.confirms(descriptor),
                due_at=self._now + self._sandbox_delay,
            )
        )

    def _book(
        self,
        account: Account,
        movements: Iterable[Entry],
        *,
        subject_id: UUID,
        sequence: int,
        line: int = 0,
    ) -> None:
        """Append `movements` from `line` on; the customer's side moves the balance of `account`."""
        for place, entry in enumerate(movements, start=line):
            debit, credit = (
                self._account_id(role, account) for role in (entry.debit, entry.credit)
            )
            change = _change(entry)
            if change:
                account.balance += change
                account.version += 1
            self.writes.entries.append(
                EntryRecord(
                    subject_id=subject_id,
                    sequence=sequence,
                    line=place,
                    customer_id=account.customer_id,
                    debit_account_id=debit,
                    credit_account_id=credit,
                    amount=entry.amount,
                    account_id=account.id if change else None,
                    account_version=account.version if change else None,
                    balance_after=account.balance if change else None,
                    recorded_at=self._now,
                )
            )
        account.updated_at = self._now
        self.writes.accounts[account.id] = account

    def _account_id(self, role: Role, account: Account) -> UUID:
        if role is Role.CUSTOMER:
            return account.id
        return self._loaded.system_accounts[account.platform_id, account.currency, role]

    def _keep(self, after: RollUp) -> None:
        purchase = purchase_of(after)
        self.known[purchase] = self.writes.roll_ups[purchase] = after
        self._note_debt(purchase, after)
        self._tell(
            f"CARD_TRANSACTION.{after.state.status}",
            after.identity.id,
            after.identity.customer_id,
            after.identity.platform_id,
            after.state.sequence,
        )

    # --- what has to be told ---------------------------------------------------------------

    def _tell_balances(self) -> None:
        """Tell of every account whose balance moved: once a commit, as it is after it."""
        moved = {record.account_id for record in self.writes.entries}
        for account in self.writes.accounts.values():
            if account.id in moved:
                self._tell(
                    "INTERNAL_ACCOUNT.BALANCE_UPDATED",
                    account.id,
                    account.customer_id,
                    account.platform_id,
                    account.version,
                    accounts.kept(account),
                )

    def _tell(  # noqa: PLR0913, PLR0917 - the columns of an outbox row
        self,
        kind: str,
        subject_id: UUID,
        customer_id: UUID,
        platform_id: UUID,
        sequence: int | None,
        data: dict[str, Any] | None = None,
    ) -> None:
        self.writes.outbox.append(
            OutboxRecord(
                id=new_id(),
                customer_id=customer_id,
                platform_id=platform_id,
                type=kind,
                subject_id=subject_id,
                sequence=sequence,
                data=data,
                recorded_at=self._now,
            )
        )


def rejection_of(
    message: Message, reason: RejectionReason, detail: str, at: datetime
) -> RejectionRecord:
    """Return the row that keeps `message`, whatever is in its body."""
    body = dumps(message.body, ensure_ascii=False)
    return RejectionRecord(
        id=message.id,
        customer_id=message.customer_id,
        platform_id=message.platform_id,
        source=message.source,
        reference=message.reference,
        # JSON may hold half of a surrogate pair, which UTF-8 cannot; this escapes it again.
        body=body.encode(errors="backslashreplace").decode(),
        reason=reason,
        detail=detail,
        recorded_at=at,
    )


def purchase_of(roll_up: RollUp) -> Purchase:
    """Return what ties the events of `roll_up` together."""
    who = roll_up.identity
    return Purchase(who.customer_id, who.card_id, who.issuer_transaction_token)


def purchases_of(messages: Iterable[Message]) -> set[Purchase]:
    """Return the card transactions that `messages` concern, as far as they can be read."""
    found = set()
    for message in messages:
        try:
            found.add(_purchase(message))
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # It will be rejected when its turn comes.
    return found


def closed_cards(messages: Iterable[Message]) -> set[UUID]:
    """Return the cards that `messages` say were closed."""
    return {
        _card_id(message.body["cardId"])
        for message in messages
        if isinstance(message.body, dict) and message.body.get("type") == inbox.CARD_CLOSED
    }


def transfers_of(messages: Iterable[Message]) -> set[tuple[UUID, UUID]]:
    """Return the transfers that `messages` are to carry out, each with its customer."""
    found = set()
    for message in messages:
        if isinstance(message.body, dict) and message.body.get("type") == inbox.TRANSFER:
            with suppress(KeyError, TypeError, ValueError, AttributeError):
                found.add((UUID(message.body["transferId"]), message.customer_id))
    return found


def receivers_of(messages: Iterable[Message]) -> set[UUID]:
    """Return the customers to whose accounts `messages` bring money."""
    return {
        message.customer_id
        for message in messages
        if isinstance(message.body, dict) and message.body.get("type") == inbox.DEPOSIT
    }


def _purchase(message: Message) -> Purchase:
    body = message.body
    card_id = _card_id(body["cardId"])
    return Purchase(message.customer_id, card_id, body["issuerTransactionToken"])


@lru_cache(maxsize=100_000)
def _card_id(wire: str) -> UUID:
    return UUID(wire.removeprefix("Card:"))


def _named(roll_up: RollUp, body: Mapping[str, Any]) -> RollUp:
    """Return `roll_up` with the merchant that `body` names, if nobody has named one before."""
    merchant = body.get("merchant")
    if roll_up.identity.descriptor is not None or not merchant:
        return roll_up
    identity = roll_up.identity._replace(
        descriptor=merchant["descriptor"],
        mcc=merchant.get("mcc"),
        country=merchant.get("country"),
    )
    return roll_up._replace(identity=identity)


def _refusal(error: Exception) -> RejectedError:
    """Return why a message that led to `error` is rejected."""
    if isinstance(error, RejectedError):
        return error
    if isinstance(error, AmountOutOfRangeError):
        return RejectedError(RejectionReason.AMOUNT_OUT_OF_RANGE, str(error))
    # Validated at the door, so this row came another way; its neighbours go on.
    return RejectedError(RejectionReason.MALFORMED, f"cannot be read: {error!r}")


def _amount(body: Mapping[str, Any], *, least: int = 1) -> int:
    amount = body["amount"]
    if type(amount) is not int or not least <= amount <= MAX_AMOUNT:
        raise ValueError(f"amount must be an integer from {least} to {MAX_AMOUNT}")
    return amount


def _is_outdated(message: Message, roll_up: RollUp) -> bool:
    """Return whether the schedule speaks of an end that has been put off since."""
    seen = parse_time(message.body.get("expiresAt"))
    return seen is not None and roll_up.expires_at is not None and seen < roll_up.expires_at


def _idle(command: commands.Command) -> Remark:
    """Return why there was nothing to do about `command`."""
    takes_back = isinstance(command, commands.Reverse)
    return Remark.NOTHING_TO_REVERSE if takes_back else Remark.NOT_OPEN


def _remark(before: CardTransaction, command: commands.Command) -> Remark | None:
    """Return what is worth knowing about `command`, which was applied all the same."""
    match command:
        case commands.Clear() if before.closed and before.closed_by is not Closure.REFUNDED:
            return Remark.LATE_CLEARING
        case commands.Clear() if not before.authorized:
            return Remark.FORCE_POST
        case commands.Reverse(amount=amount) if (amount or 0) > before.outstanding:
            return Remark.OVER_REVERSAL
        case commands.Refund(amount=amount) if before.refunded + amount > before.settled:
            return Remark.OVER_REFUND
        case commands.Advise(total=total) if total < before.settled:
            return Remark.ADVICE_BELOW_SETTLED
        case _:
            return None


def _funds(account: Account) -> transfer.Funds:
    return transfer.Funds(
        is_usable=account.status == accounts.ACTIVE,
        balance=account.balance,
        held=account.held,
        owed=account.owed,
    )


def _change(entry: Entry) -> int:
    """Return what `entry` does to the balance of the customer's account."""
    if entry.credit is Role.CUSTOMER:
        return entry.amount
    return -entry.amount if entry.debit is Role.CUSTOMER else 0
