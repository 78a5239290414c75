"""One batch in memory: decide messages in order, each seeing what its predecessors left.

Nothing here talks to the database. `engine` loads a `Batch`, lets it decide and writes what it
collected; the rules are those of `core`, and what facts leave behind is that of `books`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic_core import to_json

from cardledger.ledger.core import commands, sandbox, transfer
from cardledger.ledger.core.card_transaction import (
    CardTransaction,
    Closure,
    Decision,
    decide,
    waits,
)
from cardledger.ledger.core.entries import deposit_entry, transfer_entries
from cardledger.ledger.core.events import (
    Declined,
    Event,
    PullFailed,
    PullPending,
    PullResized,
    Refunded,
    Released,
)
from cardledger.ledger.core.money import AmountOutOfRangeError, checked
from cardledger.ledger.engine.change_set import BatchSnapshot, CardTransactionContext, ChangeSet
from cardledger.ledger.engine.parsing import (
    RejectedError,
    amount_of,
    card_id_of,
    card_transaction_key_of,
    flag_of,
    key_of,
    merchant_of,
    occurred_at,
    refusal,
    rejection_of,
    transfers_of,
)
from cardledger.ledger.engine.reads import DEBTS_LIMIT
from cardledger.ledger.engine.records import (
    Account,
    Card,
    CardTransactionKey,
    DepositRecord,
    OutcomeRow,
    Parked,
    PendingPull,
)
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections import accounts, transfers
from cardledger.ledger.projections.card_transaction import Identity, RollUp, opened
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import EventType, parse_time
from cardledger.schema.wire.outcomes import OutcomeFlag, OutcomeType, RejectionReason
from cardledger.schema.wire.webhooks.envelope import WebhookType

_CLEARS_TOO: Final = EventType.FINANCIAL_AUTHORIZATION
_AUTHORIZATIONS: Final = (
    EventType.AUTHORIZATION,
    EventType.AUTHORIZATION_INCREMENT,
    _CLEARS_TOO,
)

_FREES_MONEY: Final = frozenset({Released, Refunded, PullResized})

_SELF: Final = "engine"  # Source of the messages that it sends to itself.


@dataclass(slots=True)
class Decided:
    """What became of one message; `roll_up` is its card transaction after it."""

    message: Message
    outcome: OutcomeType
    reason: str | None = None
    detail: str | None = None
    first_outcome: OutcomeType | None = None
    roll_up: RollUp | None = None


class Batch:
    """Decides messages one after the other and collects what has to be written.

    A message either leaves all its traces or, when it is rejected, only its rejection.
    """

    def __init__(
        self, loaded: BatchSnapshot, *, now: datetime, sandbox_delay: timedelta | None
    ) -> None:
        """Start from `loaded`; `now` is the moment of every decision.

        `sandbox_delay` is how long the sandbox's slow answers take; None outside the sandbox.
        """
        self.first_deadline: datetime | None = None  # Of the approvals given.
        self._loaded: Final = loaded
        self._books: Final = ChangeSet(loaded, now=now)
        self.writes: Final = self._books.writes
        self._outcomes: Final = dict(loaded.outcomes)  # Of earlier messages, also of this batch.
        self._parked: Final = {purchase: [*rows] for purchase, rows in loaded.parked.items()}
        self._now: Final = now
        self._sandbox_delay: Final = sandbox_delay

    def decide(self, messages: Iterable[Message]) -> list[Decided]:
        """Return what became of `messages`, in their order."""
        return [self._decide(message) for message in messages]

    def _decide(self, message: Message) -> Decided:
        key = key_of(message)
        size = self.writes.size
        try:
            first = self._outcomes.get(key)
            if first:
                return self._repeat(message, first)
            decided = _HANDLERS.get(message.body["type"], Batch._record)(self, message)
        except (RejectedError, KeyError, TypeError, ValueError, AttributeError) as error:
            if self.writes.size != size:
                raise  # Half done is our fault: the whole batch must go.
            return self._reject(message, refusal(error))
        after = decided.roll_up
        row = self._outcomes[key] = OutcomeRow(
            key,
            message.body_hash,
            message.id,
            decided.outcome,
            decided.reason,
            after.identity.id if after else None,
            after.state.sequence if after else None,
        )
        self.writes.outcomes.append(row)
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
            roll_up=self._known(message),
        )

    def _known(self, message: Message) -> RollUp | None:
        """Return where the card transaction of `message` stands, if it concerns one."""
        if "issuerTransactionToken" not in message.body:
            return None
        case = self._books.case(card_transaction_key_of(message))
        return case.roll_up if case else None

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

    def _authorize(self, message: Message) -> Decided:
        card, case = self._concerned(message)
        before, account, body = case.roll_up, case.account, message.body
        decide_by = parse_time(body.get("decideBy"))
        descriptor = self._descriptor(before, body)
        command = commands.Authorize(
            amount=amount_of(body),
            balance=account.balance,
            owed=account.owed,
            card_state=card.state,
            account_usable=account.status == accounts.ACTIVE,
            max_spend=card.max_spend,
            forced_decline=sandbox.forced_decline(descriptor),
            decided_at=self._now,
            decide_by=decide_by,
            confirms_later=sandbox.confirms_later(descriptor),
            clears=body["type"] == _CLEARS_TOO,
        )
        decision = decide(before.state, command)
        first = decision.facts[0]
        if isinstance(first, Declined):
            after = self._apply_all(message, case, decision, before)
            return Decided(message, OutcomeType.DECLINED, reason=first.reason, roll_up=after)
        # Only an approval names the merchant: it also starts the time that his category gives.
        after = self._apply_all(message, case, decision, _named(before, body))
        if decide_by and (self.first_deadline is None or decide_by < self.first_deadline):
            self.first_deadline = decide_by
        return Decided(message, OutcomeType.APPLIED, roll_up=after)

    def _record(self, message: Message) -> Decided:
        """Record what has happened at the network: it cannot be refused."""
        _, case = self._concerned(message)
        before = case.roll_up
        command = self._command(message.body, case)
        if waits(before.state, command) and "expiresAt" not in message.body:
            return self._park(message, case)  # The schedule speaks of what it has seen.
        known = before if before.state.sequence else None
        if _is_outdated(message, before):
            return Decided(message, OutcomeType.IGNORED, reason=OutcomeFlag.EXTENDED, roll_up=known)
        decision = decide(before.state, command)
        if not decision.facts:
            return Decided(message, OutcomeType.IGNORED, reason=_idle(command), roll_up=known)
        after = self._apply_all(message, case, decision, before)
        remark = _remark(before.state, command)
        return Decided(message, OutcomeType.APPLIED, reason=remark, roll_up=after)

    def _command(self, body: Mapping[str, Any], case: CardTransactionContext) -> commands.Command:
        """Return what `body` asks of its card transaction."""
        balance = self._pullable(case.account, case.roll_up.identity)
        match body["type"]:
            case EventType.CLEARING:
                final = flag_of(body, "final") if "final" in body else None
                return commands.Clear(amount=amount_of(body), final=final, balance=balance)
            case EventType.CLEARING_REVERSAL:
                return commands.ReverseClearing(amount=amount_of(body))
            case EventType.RETURN:
                return commands.Refund(amount=amount_of(body))
            case EventType.RETURN_REVERSAL:
                return commands.ReverseRefund(amount=amount_of(body), balance=balance)
            case EventType.STAND_IN_AUTHORIZATION:
                return commands.StandIn(amount=amount_of(body), balance=balance)
            case EventType.AUTHORIZATION_ADVICE:
                return commands.Advise(total=amount_of(body, least=0), balance=balance)
            case EventType.AUTHORIZATION_REVERSAL:
                return commands.Reverse(amount=amount_of(body) if "amount" in body else None)
            case EventType.AUTHORIZATION_EXPIRY:
                return commands.Expire()
            case inbox.PULL_CONFIRMATION:
                succeeded = flag_of(body, "succeeded")
                return commands.ConfirmPull(amount=amount_of(body), succeeded=succeeded)
        raise RejectedError(RejectionReason.MALFORMED, "type is not known")

    def _park(self, message: Message, case: CardTransactionContext) -> Decided:
        parked = Parked(message.id, *case.purchase, message.body, message.received_at)
        self.writes.parked.append(parked)
        self._parked.setdefault(parked.purchase, []).append(parked)
        known = case.roll_up if case.roll_up.state.sequence else None
        return Decided(message, OutcomeType.PARKED, reason=OutcomeFlag.WAITS, roll_up=known)

    def _unpark(self, case: CardTransactionContext) -> None:
        """Apply what waited for the facts that have just arrived; each may free another."""
        waiting = self._parked.get(case.purchase, [])
        for parked in list(waiting):
            state = case.roll_up.state
            command = self._command(parked.body, case)
            if waits(state, command):
                continue
            try:
                decision = decide(state, command)
                if decision.facts:
                    self._apply(parked, case, decision)
            except AmountOutOfRangeError:
                continue  # A total is at the end of its range: it goes on waiting.
            waiting.remove(parked)
            self.writes.unparked.append((case.purchase, parked.id))

    def _close_card(self, message: Message) -> Decided:
        """Give back what is held for the card transactions of a card that was closed."""
        card = card_id_of(message.body["cardId"]), message.customer_id
        of_card = [
            case
            for case in self._books
            if (case.purchase.card_id, case.purchase.customer_id) == card
        ]
        # In the order in which they were opened, whatever the order in which they were loaded.
        for case in sorted(of_card, key=lambda one: one.roll_up.identity.id):
            # As it stands by now: a release for another may have paid its open pull.
            decision = decide(case.roll_up.state, commands.Cancel())
            if decision.facts:
                self._apply(message, case, decision)
        return Decided(message, OutcomeType.APPLIED)

    def _concerned(self, message: Message) -> tuple[Card, CardTransactionContext]:
        """Return the card and the card transaction of a network event."""
        body = message.body
        purchase = card_transaction_key_of(message)
        occurred_at(message)  # One that cannot be read must not be found out when it is parked.
        card = self._loaded.cards.get(purchase.card_id)
        if card is None or card.customer_id != message.customer_id:
            raise RejectedError(RejectionReason.UNKNOWN_CARD, "cardId names no card of yours")
        if body["currency"] != card.currency:
            raise RejectedError(
                RejectionReason.INVALID_CURRENCY, f"the currency of this card is {card.currency}"
            )
        case = self._books.case(purchase) or self._open(purchase, body, card)
        sequence = case.roll_up.state.sequence
        if body.get("expectedSequence", sequence) != sequence:
            raise RejectedError(
                RejectionReason.OUTDATED, "the card transaction has moved on; look at it again"
            )
        return card, case

    def _open(
        self, purchase: CardTransactionKey, body: Mapping[str, Any], card: Card
    ) -> CardTransactionContext:
        """Return a card transaction of which nothing has been recorded yet."""
        descriptor, mcc, country = merchant_of(body)
        identity = Identity(
            new_id(),
            card.customer_id,
            card.platform_id,
            card.platform_customer_id,
            card.id,
            card.account_id,
            purchase.token,
            card.currency,
            descriptor,
            mcc,
            country,
            self._now,
        )
        account = self._loaded.accounts[card.account_id]
        return CardTransactionContext(purchase, account, opened(identity), is_new=True)

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
        account = self._loaded.accounts.get(Id.parse(message.body["accountId"]))
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
        entry = deposit_entry(amount_of(message.body))
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
        told = transfers.incoming(
            transfers.Deposit(
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
        self._books.book(account, [entry], subject_id=deposit.id, sequence=0)
        self._books.emit(
            WebhookType.INCOMING_PAYMENT_COMPLETED,
            deposit.id,
            deposit.customer_id,
            deposit.platform_id,
            None,
            to_json(told.wire()).decode(),
        )
        self._recover(message, account)
        return Decided(message, OutcomeType.APPLIED)

    # --- money between accounts of one customer ------------------------------------------------

    def _transfer(self, message: Message) -> Decided:
        """Carry a transfer out or let it fail; what it says stands in its row, not here."""
        key = Id.parse(message.body["transferId"])
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
        self._books.book(source, [out], subject_id=key, sequence=0)
        self._books.book(destination, [into], subject_id=key, sequence=0, line=1)
        self._end(wanted.completed(at=self._now))
        self._recover(message, destination)
        return Decided(message, OutcomeType.APPLIED)

    def _in_progress(self, key: Id, customer_id: Id) -> Transfer | None:
        """Return the customer's transfer `key` if it is to be carried out."""
        wanted = self.writes.transfers.get(key) or self._loaded.transfers.get(key)
        if wanted is None or wanted.customer_id != customer_id:
            return None
        return wanted if wanted.status == transfers.PROCESSING else None

    def _end(self, ended: Transfer) -> None:
        self.writes.transfers[ended.id] = ended
        self._books.emit(
            transfers.webhook_type(ended),
            ended.id,
            ended.customer_id,
            ended.platform_id,
            None,
            to_json(transfers.outgoing(ended).wire()).decode(),
        )

    def _go_on_recovering(self, message: Message) -> Decided:
        self._recover(message, self._loaded.accounts[Id.parse(message.body["accountId"])])
        return Decided(message, OutcomeType.APPLIED)

    def _recover(
        self,
        message: Message | Parked,
        account: Account,
        *,
        ahead_of: CardTransactionContext | None = None,
    ) -> None:
        """Try again what `account` has to pay, oldest first; the first that it cannot ends it."""
        owing = self._books.owing(account)
        if not owing:
            return
        loaded = {d.identity.id for d in self._loaded.debts if d.identity.account_id == account.id}
        is_whole = len(loaded) < DEBTS_LIMIT
        queue = sorted(
            (case for case in owing if is_whole or case.roll_up.identity.id in loaded),
            key=lambda one: (one.roll_up.debt_since, one.roll_up.debt_id),
        )
        for case in queue:
            if case is ahead_of:
                return
            try:
                decision = decide(case.roll_up.state, commands.Recover(balance=account.balance))
                if not decision.facts:
                    return
                self._apply(message, case, decision)
            except AmountOutOfRangeError:
                return  # A total is at the end of its range: the pull stays open.
            if case.roll_up.debt_id:
                return
        if not is_whole:
            self._follow_up(account)

    def _follow_up(self, account: Account) -> None:
        """Have the rest of a long queue paid by a message of its own."""
        key = new_id()
        body = {
            "type": inbox.RECOVERY,
            "source": _SELF,
            "reference": str(key),
            "accountId": str(account.id),
        }
        home = inbox.Owner(account.customer_id, account.platform_id)
        self.writes.follow_ups.append(
            inbox.address(body, home, lane=inbox.Lane.LIVE, reply_to=None, at=self._now)
        )

    # --- what follows from facts -----------------------------------------------------------

    def _apply_all(
        self, message: Message, case: CardTransactionContext, decision: Decision, before: RollUp
    ) -> RollUp:
        """Record a decision and what has waited for it; returns where that leads.

        What the card transaction stood at is `before`: a message may know more of its merchant.
        """
        self._apply(message, case, decision, before)
        if self._parked:
            self._unpark(case)
        return case.roll_up

    def _apply(
        self,
        message: Message | Parked,
        case: CardTransactionContext,
        decision: Decision,
        before: RollUp | None = None,
    ) -> None:
        """Record a decision about one card transaction, with all that follows from it."""
        self._books.record(
            case,
            before or case.roll_up,
            decision,
            message_id=message.id,
            occurred_at=occurred_at(message),
        )
        kinds = set(map(type, decision.facts))
        if PullPending in kinds:
            self._await_confirmation(case, decision.facts, message.body)
        if not kinds.isdisjoint(_FREES_MONEY):
            self._recover(message, case.account)
        elif PullFailed in kinds:
            # What it gives back is what it could not pay, but older debts may have it.
            self._recover(message, case.account, ahead_of=case)

    def _await_confirmation(
        self, case: CardTransactionContext, facts: Sequence[Event], body: Mapping[str, Any]
    ) -> None:
        """Keep the pull among `facts`, the last of the card transaction, until it is confirmed."""
        assert self._sandbox_delay is not None, "only the sandbox answers late"
        descriptor = self._descriptor(case.roll_up, body)
        first = case.roll_up.state.sequence - len(facts) + 1
        for sequence, fact in enumerate(facts, start=first):
            if isinstance(fact, PullPending):
                self.writes.pending_pulls.append(
                    PendingPull(
                        card_transaction_id=case.roll_up.identity.id,
                        sequence=sequence,
                        customer_id=case.purchase.customer_id,
                        card_id=case.purchase.card_id,
                        token=case.purchase.token,
                        amount=fact.amount,
                        succeeds=sandbox.confirms(descriptor),
                        due_at=self._now + self._sandbox_delay,
                    )
                )


# Not in the object: it would point to itself, and live on until the garbage collector came.
_HANDLERS: Final = dict.fromkeys(_AUTHORIZATIONS, Batch._authorize) | {  # noqa: SLF001 - ours
    inbox.DEPOSIT: Batch._deposit,  # noqa: SLF001
    inbox.TRANSFER: Batch._transfer,  # noqa: SLF001
    inbox.CARD_CLOSED: Batch._close_card,  # noqa: SLF001
    inbox.RECOVERY: Batch._go_on_recovering,  # noqa: SLF001
}


def _named(roll_up: RollUp, body: Mapping[str, Any]) -> RollUp:
    """Return `roll_up` with the merchant that `body` names, if nobody has named one before."""
    if roll_up.identity.descriptor is not None or not body.get("merchant"):
        return roll_up
    descriptor, mcc, country = merchant_of(body)
    identity = replace(roll_up.identity, descriptor=descriptor, mcc=mcc, country=country)
    return replace(roll_up, identity=identity)


def _is_outdated(message: Message, roll_up: RollUp) -> bool:
    """Return whether the schedule speaks of an end that has been put off since."""
    seen = parse_time(message.body.get("expiresAt"))
    return seen is not None and roll_up.expires_at is not None and seen < roll_up.expires_at


def _idle(command: commands.Command) -> OutcomeFlag:
    """Return why there was nothing to do about `command`."""
    takes_back = isinstance(command, commands.Reverse)
    return OutcomeFlag.NOTHING_TO_REVERSE if takes_back else OutcomeFlag.NOT_OPEN


def _remark(before: CardTransaction, command: commands.Command) -> OutcomeFlag | None:
    """Return what is worth knowing about `command`, which was applied all the same."""
    match command:
        case commands.Clear() if before.closed and before.closed_by is not Closure.REFUNDED:
            return OutcomeFlag.LATE_CLEARING
        case commands.Clear() if not before.authorized:
            return OutcomeFlag.FORCE_POST
        case commands.Reverse(amount=amount) if (amount or 0) > before.outstanding:
            return OutcomeFlag.OVER_REVERSAL
        case commands.Refund(amount=amount) if before.refunded + amount > before.settled:
            return OutcomeFlag.OVER_REFUND
        case commands.Advise(total=total) if total < before.settled:
            return OutcomeFlag.ADVICE_BELOW_SETTLED
        case _:
            return None


def _funds(account: Account) -> transfer.Funds:
    return transfer.Funds(
        is_usable=account.status == accounts.ACTIVE,
        balance=account.balance,
        held=account.held,
        owed=account.owed,
    )
