"""Network events and pull confirmations: what they do to their card transaction."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from cardledger.ledger.core import commands
from cardledger.ledger.core.card_transaction import CardTransaction, Decision, decide, waits
from cardledger.ledger.core.events import CreditDeclined, Declined
from cardledger.ledger.core.money import AmountOutOfRangeError
from cardledger.ledger.core.status import WITHOUT_PURCHASE
from cardledger.ledger.engine.change_set import CardTransactionContext, ChangeSet
from cardledger.ledger.engine.decisions.rail_answers import RailAnswers
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.decisions.suspense import Suspense
from cardledger.ledger.engine.parsing import (
    RejectedError,
    amount_of,
    card_transaction_key_of,
    flag_of,
    merchant_of,
    owns,
    time_of,
    value_of,
)
from cardledger.ledger.engine.records import (
    PARKED_LIMIT,
    Card,
    CardTransactionKey,
    Decided,
    Parked,
)
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections import accounts
from cardledger.ledger.projections.card_transaction import Identity, RollUp, opened
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import EventType
from cardledger.schema.wire.outcomes import OutcomeFlag, OutcomeType, RejectionReason

_BEFORE_EVERY_DECISION: Final = datetime(1, 1, 2, tzinfo=UTC)


class NetworkEvents:
    """Decides network events; messages that came too early are parked until they can be decided."""

    def __init__(
        self, changes: ChangeSet, recovery: Recovery, rail: RailAnswers, suspense: Suspense
    ) -> None:
        self.deadlines: Final[list[tuple[datetime, Id]]] = []  # Of approvals, with their messages.
        self._changes: Final = changes
        self._recovery: Final = recovery
        self._rail: Final = rail
        self._suspense: Final = suspense
        self._parked: Final = {key: [*rows] for key, rows in changes.snapshot.parked.items()}

    def authorize(self, message: Message, *, is_late: bool = False) -> Decided:
        """Approve or decline a live authorization; decline it in any case when it `is_late`."""
        card, context = self._concerned(message)
        before, account, body = context.roll_up, context.account, message.body
        decide_by = time_of(body, "decideBy")
        descriptor = self._rail.descriptor(before.identity, body)
        command = commands.Authorize(
            amount=amount_of(body),
            balance=account.balance,
            owed=account.owed,
            card_state=card.state,
            account_usable=account.status == accounts.ACTIVE,
            max_spend=card.max_spend,
            issuer_decline=self._rail.issuer_decline(descriptor),
            decided_at=self._changes.now,
            decide_by=_BEFORE_EVERY_DECISION if is_late else decide_by,
            confirms_later=self._rail.confirms_later(descriptor),
            clears=body["type"] == EventType.FINANCIAL_AUTHORIZATION,
        )
        decision = decide(before.state, command)
        first = decision.facts[0]
        if isinstance(first, Declined):
            after = self._apply(message, context, decision, before)
            return Decided(message, OutcomeType.DECLINED, reason=first.reason, roll_up=after)
        # Only an approval sets the merchant: its category decides when the authorization expires.
        after = self._apply(message, context, decision, _with_merchant(before, body))
        if decide_by:
            self.deadlines.append((decide_by, message.id))
        return Decided(message, OutcomeType.APPLIED, roll_up=after)

    def authorize_credit(self, message: Message, *, is_late: bool = False) -> Decided:
        """Approve or decline a live authorization of a credit, as `authorize` does."""
        card, context = self._concerned(message)
        before, body = context.roll_up, message.body
        decide_by = time_of(body, "decideBy")
        command = commands.AuthorizeCredit(
            amount=amount_of(body),
            card_state=card.state,
            account_usable=context.account.status == accounts.ACTIVE,
            issuer_decline=self._rail.issuer_decline(self._rail.descriptor(before.identity, body)),
            decided_at=self._changes.now,
            decide_by=_BEFORE_EVERY_DECISION if is_late else decide_by,
        )
        decision = decide(before.state, command)
        first = decision.facts[0]
        if isinstance(first, CreditDeclined):
            after = self._apply(message, context, decision, before)
            return Decided(message, OutcomeType.DECLINED, reason=first.reason, roll_up=after)
        after = self._apply(message, context, decision, _with_merchant(before, body))
        if decide_by:
            self.deadlines.append((decide_by, message.id))
        return Decided(message, OutcomeType.APPLIED, roll_up=after)

    def ask(self, message: Message, *, is_late: bool) -> Decided:
        """Decide a live authorization of either direction."""
        # What a timeout reversal says of an authorization may lack a type.
        if message.body.get("type") == EventType.CREDIT_AUTHORIZATION:
            return self.authorize_credit(message, is_late=is_late)
        return self.authorize(message, is_late=is_late)

    def record(self, message: Message) -> Decided:
        """Record what has happened at the network: it cannot be declined."""
        _, context = self._concerned(message)
        before = context.roll_up
        command = self._command(message.body, context)
        # An expiry is never parked: the schedule sends it for an authorization that is recorded.
        if waits(before.state, command) and "expiresAt" not in message.body:
            return self._park(message, context)
        known = before if before.state.sequence else None
        if _is_early(message, self._changes.now):
            return Decided(message, OutcomeType.IGNORED, reason=OutcomeFlag.NOT_DUE, roll_up=known)
        if _is_extended(message, before):
            return Decided(message, OutcomeType.IGNORED, reason=OutcomeFlag.EXTENDED, roll_up=known)
        decision = decide(before.state, command)
        if not decision.facts:
            reason = _reason_to_ignore(command)
            return Decided(message, OutcomeType.IGNORED, reason=reason, roll_up=known)
        after = self._apply(message, context, decision, before)
        return Decided(
            message, OutcomeType.APPLIED, reason=_flag(before.state, command), roll_up=after
        )

    def _apply(
        self,
        message: Message,
        context: CardTransactionContext,
        decision: Decision,
        before: RollUp,
    ) -> RollUp:
        """Apply a decision, then the parked messages that waited for it; return the roll-up."""
        self._recovery.apply(message, context, decision, before)
        if self._parked:
            self._unpark(context)
        return context.roll_up

    def _command(  # noqa: C901 - one branch a type
        self, body: Mapping[str, Any], context: CardTransactionContext
    ) -> commands.Command:
        """Return the command in `body`."""
        balance = self.pullable(context)
        match body["type"]:
            case EventType.CLEARING:
                final = flag_of(body, "final") if "final" in body else None
                return commands.Clear(amount=amount_of(body), final=final, balance=balance)
            case EventType.CLEARING_REVERSAL:
                return commands.ReverseClearing(amount=amount_of(body), balance=balance)
            case EventType.RETURN:
                return commands.Refund(amount=amount_of(body))
            case EventType.FINANCIAL_CREDIT_AUTHORIZATION:
                return commands.Credit(amount=amount_of(body))
            case EventType.CREDIT_AUTHORIZATION_ADVICE:
                return commands.AdviseCredit(total=amount_of(body, least=0))
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
        raise AssertionError(f"no command for messages of type {body['type']}")

    def pullable(self, context: CardTransactionContext) -> int:
        """Return what the funding account has for what has happened at the network.

        Of any status, as recovery does: a closed account keeps what is refunded to it, and the
        network may take that back.
        """
        refused = self._rail.refuses_pull(context.roll_up.identity)
        return 0 if refused else context.account.balance

    # --- the card transaction of a message -------------------------------------------------

    def _concerned(self, message: Message) -> tuple[Card, CardTransactionContext]:
        """Return the card and the card transaction of a network event."""
        body = message.body
        key = card_transaction_key_of(message)
        _, card_id, _ = key
        card = self._changes.snapshot.cards.get(card_id)
        if card is None or not owns(message, card):
            raise RejectedError(
                RejectionReason.UNKNOWN_CARD,
                "Unknown card: cardId does not match a card of this platform.",
            )
        if value_of(body, "currency") != card.currency:
            raise RejectedError(
                RejectionReason.INVALID_CURRENCY,
                f"Currency must be {card.currency}, the currency of the card.",
            )
        context = self._changes.card_transaction(key) or self._open(key, body, card)
        sequence = context.roll_up.state.sequence
        if body.get("expectedSequence", sequence) != sequence:
            raise RejectedError(
                RejectionReason.OUTDATED,
                "The card transaction was modified concurrently; read it again and retry.",
            )
        return card, context

    def _open(
        self, key: CardTransactionKey, body: Mapping[str, Any], card: Card
    ) -> CardTransactionContext:
        """Return a new card transaction, without events so far."""
        _, _, token = key
        descriptor, mcc, country = merchant_of(body)
        identity = Identity(
            new_id(),
            card.customer_id,
            card.platform_id,
            card.platform_customer_id,
            card.id,
            card.account_id,
            token,
            card.currency,
            descriptor,
            mcc,
            country,
            self._changes.now,
        )
        account = self._changes.snapshot.accounts[card.account_id]
        return CardTransactionContext(key, account, opened(identity), is_new=True)

    # --- messages that came too early ------------------------------------------------------

    def _park(self, message: Message, context: CardTransactionContext) -> Decided:
        waiting = self._parked.setdefault(context.key, [])
        if len(waiting) >= PARKED_LIMIT:
            raise RejectedError(
                RejectionReason.TOO_MANY_PARKED,
                f"{PARKED_LIMIT} events wait for this card transaction already.",
            )
        body = inbox.event_of(message.body)
        parked = Parked(message.id, *context.key, body, message.received_at)
        self._changes.writes.parked.append(parked)
        waiting.append(parked)
        known = context.roll_up if context.roll_up.state.sequence else None
        return Decided(message, OutcomeType.PARKED, reason=OutcomeFlag.WAITS, roll_up=known)

    def _unpark(self, context: CardTransactionContext) -> None:
        """Apply the parked messages that the latest events make possible; each may free another."""
        waiting = self._parked.get(context.key, [])
        for parked in list(waiting):
            state = context.roll_up.state
            command = self._command(parked.body, context)
            if waits(state, command):
                continue
            try:
                decision = decide(state, command)
                if decision.facts:
                    self._recovery.apply(parked, context, decision)
            except AmountOutOfRangeError:
                continue  # A total is at the end of its range: the message stays parked.
            self._suspense.take_back_parked(parked)
            waiting.remove(parked)
            self._changes.writes.unparked.append((context.key, parked.id))


def _with_merchant(roll_up: RollUp, body: Mapping[str, Any]) -> RollUp:
    """Return `roll_up` with the merchant of `body`, unless it has a merchant."""
    if roll_up.identity.descriptor is not None or not body.get("merchant"):
        return roll_up
    descriptor, mcc, country = merchant_of(body)
    identity = replace(roll_up.identity, descriptor=descriptor, mcc=mcc, country=country)
    return replace(roll_up, identity=identity)


def _is_early(message: Message, now: datetime) -> bool:
    """Return whether `message` is an expiry before its time: some clock was ahead.

    An expiry that an operator wants before its time says `asOf` when.
    """
    scheduled = time_of(message.body, "expiresAt")
    if scheduled is None:
        return False
    as_of = time_of(message.body, "asOf")
    return scheduled > (now if as_of is None else max(now, as_of))


def _is_extended(message: Message, roll_up: RollUp) -> bool:
    """Return whether `message` is an expiry whose authorization expires later by now."""
    scheduled = time_of(message.body, "expiresAt")
    return scheduled is not None and (
        roll_up.expires_at is not None and scheduled < roll_up.expires_at
    )


def _reason_to_ignore(command: commands.Command) -> OutcomeFlag:
    """Return why `command` changed nothing."""
    is_reversal = isinstance(command, commands.Reverse)
    return OutcomeFlag.NOTHING_TO_REVERSE if is_reversal else OutcomeFlag.NOT_OPEN


def _flag(before: CardTransaction, command: commands.Command) -> OutcomeFlag | None:
    """Return what is unusual about `command`, which was applied all the same."""
    match command:
        case commands.Clear() if before.closed and before.closed_by not in WITHOUT_PURCHASE:
            return OutcomeFlag.LATE_CLEARING
        case commands.Clear() if not before.authorized:
            return _flag_without_purchase(before)
        case commands.Reverse(amount=amount) if (amount or 0) > before.outstanding:
            return OutcomeFlag.OVER_REVERSAL
        case commands.Refund() | commands.Credit() if before.is_credit:
            return _flag_without_purchase(before)
        case commands.Refund(amount=amount) if before.refunded + amount > before.settled:
            return OutcomeFlag.OVER_REFUND
        case commands.Credit(amount=amount) if 0 < before.settled < before.refunded + amount:
            return OutcomeFlag.OVER_REFUND  # Of a known purchase; any other credit is no refund.
        case commands.Advise(total=total) if total < before.settled_amount:
            return OutcomeFlag.ADVICE_BELOW_SETTLED
        case commands.AdviseCredit(total=total) if total < before.credited:
            return OutcomeFlag.ADVICE_BELOW_SETTLED
        case _:
            return None


def _flag_without_purchase(before: CardTransaction) -> OutcomeFlag | None:
    """Return what is unusual about a clearing of a credit, or of a purchase that is not known."""
    if not before.is_credit:
        return OutcomeFlag.FORCE_POST
    if before.closed:
        return OutcomeFlag.LATE_CLEARING
    return None if before.credit_authorized else OutcomeFlag.FORCE_POST
