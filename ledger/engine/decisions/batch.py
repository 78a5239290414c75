"""One batch: decide its messages in order, each on the state that its predecessors left."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.core.money import AmountOutOfRangeError
from cardledger.ledger.engine.change_set import BatchSnapshot, ChangeSet
from cardledger.ledger.engine.decisions import sources
from cardledger.ledger.engine.decisions.adjustments import Adjustments
from cardledger.ledger.engine.decisions.card_closures import CardClosures
from cardledger.ledger.engine.decisions.deposits import Deposits
from cardledger.ledger.engine.decisions.network_events import NetworkEvents
from cardledger.ledger.engine.decisions.payments import messages as payment_messages
from cardledger.ledger.engine.decisions.payments.payments import Payments
from cardledger.ledger.engine.decisions.payments.transfers import Transfers
from cardledger.ledger.engine.decisions.rail_answers import RailAnswers
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.decisions.settlements import Settlements
from cardledger.ledger.engine.decisions.suspense import Suspense
from cardledger.ledger.engine.decisions.timeout_reversals import TimeoutReversals
from cardledger.ledger.engine.parsing import (
    RejectedError,
    card_transaction_key_of,
    key_of,
    object_of,
    rejection_of,
    reversal_key_of,
    type_of,
)
from cardledger.ledger.engine.records import Decided, OutcomeRow, SuspenseItem
from cardledger.ledger.messaging import inbox, timeout_reversals
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.messaging.timeout_reversals import TIMEOUT_REVERSAL
from cardledger.ledger.ports import FundingRail
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import AUTHORIZATIONS, DEBIT_AUTHORIZATIONS, EventType
from cardledger.schema.wire.outcomes import OutcomeFlag, OutcomeType, RejectionReason

_NOTHING_TO_RETURN: Final = frozenset(
    # Under a used key, another message has arrived before. From another source, what claims to be a
    # payment that arrives is none: the payment that it names may arrive yet.
    {RejectionReason.KEY_REUSED, RejectionReason.SOURCE_NOT_ALLOWED}
)


class Batch:
    """Decides messages one after the other and collects what has to be written.

    An applied message leaves all its consequences; a rejected message leaves its rejection, and
    in suspense what it has moved at the network.
    """

    def __init__(
        self,
        snapshot: BatchSnapshot,
        *,
        now: datetime,
        rail: FundingRail | None,
        webhook_id: Callable[[], Id] = new_id,
    ) -> None:
        """Start from `snapshot`; `now` is the time of every decision.

        `rail` is the connected funding rail, if any. `webhook_id` makes the ids of webhooks, by
        which they are dispatched.
        """
        self._changes: Final = ChangeSet(snapshot, now=now)
        self.writes: Final = self._changes.writes
        self.writes.webhook_id = webhook_id
        self._outcomes: Final = dict(snapshot.outcomes)  # Also those of this batch.
        self._reversals: Final = snapshot.reversals
        answers = RailAnswers(rail)
        self._recovery: Final = Recovery(self._changes, answers)
        self._suspense: Final = Suspense(self._changes)
        self._network_events: Final = NetworkEvents(
            self._changes, self._recovery, answers, self._suspense
        )
        self._card_closures: Final = CardClosures(self._changes, self._recovery)
        self._deposits: Final = Deposits(self._changes, self._recovery, answers)
        self._timeout_reversals: Final = TimeoutReversals(
            self._changes, self._recovery, self._network_events, self._outcomes
        )
        self._transfers: Final = Transfers(
            self._changes,
            self._recovery,
            Payments(self._changes, self._recovery, answers, self._suspense),
        )
        self._adjustments: Final = Adjustments(self._changes, self._recovery, self._suspense)
        self._settlements: Final = Settlements(self._changes)

    @property
    def deadlines(self) -> Sequence[tuple[datetime, Id]]:
        """The `decideBy` of each approval of this batch that has one, and its message."""
        return self._network_events.deadlines

    def decide(self, messages: Iterable[Message]) -> list[Decided]:
        """Return the result of each of `messages`, in their order."""
        return [self._decide(message) for message in messages]

    def fail_transfers(self, messages: Iterable[Message]) -> None:
        """Fail the transfers that `messages`, which are rejected, were to carry out."""
        self._transfers.fail(messages)

    def suspend(self, messages: Iterable[Message], reason: RejectionReason) -> None:
        """Book what `messages`, which are rejected for `reason`, have moved at the network."""
        for message in messages:
            self._suspense.hold(message, reason)

    def leave_out(self, resolved: Sequence[SuspenseItem]) -> None:
        """Leave out of suspense what repeats `resolved`, items that people have resolved."""
        self._suspense.leave_out(resolved)

    def _decide(self, message: Message) -> Decided:
        if message.customer_id >= inbox.CANARIES_FROM:
            return Decided(message, OutcomeType.IGNORED)  # Nothing to write: its queue moves.
        key = key_of(message)
        size = self.writes.size
        try:
            first = self._outcomes.get(key)
            if first:
                return self._repeat(message, first)
            decided = self._dispatch(message)
        # Only these refuse a message. Any other exception is a defect, and never rejects it.
        except (RejectedError, AmountOutOfRangeError) as error:
            if self.writes.size != size:
                raise  # Half applied is our fault: the whole batch must be rolled back.
            return self._reject(message, _as_rejection(error))
        if self._recovery.shards:
            decided.continues, decided.wakes = True, [*decided.wakes, *self._recovery.shards]
            self._recovery.shards.clear()
        if decided.reason is OutcomeFlag.NOT_DUE or decided.outcome is OutcomeType.DUPLICATE:
            # Its timer sends it again, with this idempotency key: it has no outcome so far. What
            # stands in suspense already needs none.
            self.writes.duplicates.append(message.id)
            return decided
        after = decided.roll_up
        # A timeout reversal may have decided an authorization in the place of its own message.
        message, key = decided.message, key_of(decided.message)
        if self._suspense.open:
            self._suspense.take_back_decided(message, decided.outcome)
        if decided.outcome is OutcomeType.PARKED:
            self._suspense.hold(message)
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
        if decided.outcome is OutcomeType.APPLIED and self._has_timed_out(message):
            decided.outcome = OutcomeType.DECLINED  # For its caller: a later message reverses it.
            decided.reason = DeclineReason.DECISION_TIMEOUT
            decided.detail = timeout_reversals.DETAIL
        return decided

    def _dispatch(self, message: Message) -> Decided:  # noqa: C901 - one branch a type
        kind = type_of(message)
        sources.check(message, kind)
        # What is wrong with a date is refused before anything is recorded with it.
        self._changes.dates_of(message)
        if kind in DEBIT_AUTHORIZATIONS:
            return self._network_events.authorize(message)
        if kind == inbox.DEPOSIT:
            return self._deposits.receive(message)
        if kind in inbox.OF_PAYMENTS:
            return self._transfers.decide(message, kind)
        if kind == inbox.ADJUSTMENT:
            return self._adjustments.book(message)
        if kind == inbox.SETTLEMENT_BOOKING:
            return self._settlements.book(message)
        if kind == inbox.CARD_CLOSED:
            return self._card_closures.release_holds(message)
        if kind == inbox.RECOVERY:
            return self._recovery.resume(message)
        if kind == TIMEOUT_REVERSAL:
            return self._timeout_reversals.settle(message)
        if kind == inbox.SUSPENSE:
            return self._suspense.receive(message, self._outcomes)
        if kind == EventType.CREDIT_AUTHORIZATION:
            return self._network_events.authorize_credit(message)
        return self._network_events.record(message)

    def _repeat(self, message: Message, first: OutcomeRow) -> Decided:
        if not inbox.repeats(message, first.body_hash):
            raise RejectedError(
                RejectionReason.KEY_REUSED,
                "Reference was already used for a different event; use a new reference.",
            )
        decided = Decided(
            message,
            OutcomeType.DUPLICATE,
            reason=first.reason,
            first_outcome=OutcomeType(first.outcome),
            roll_up=self._current(message),
        )
        if first.outcome == OutcomeType.APPLIED and self._has_timed_out(message):
            decided.first_outcome = OutcomeType.DECLINED
            decided.reason = DeclineReason.DECISION_TIMEOUT
            decided.detail = timeout_reversals.DETAIL_AGAIN
        self.writes.duplicates.append(message.id)
        return decided

    def _has_timed_out(self, message: Message) -> bool:
        """Return whether `message` is an authorization with a timeout reversal, decided or not.

        Its caller has been told that it is declined. The reversal may stand behind a repetition in
        the queue: ids come from the clocks of their writers.
        """
        return (
            bool(self._reversals)
            and type_of(message) in AUTHORIZATIONS
            and reversal_key_of(message) in self._reversals
        )

    def _current(self, message: Message) -> RollUp | None:
        """Return the current roll-up of the card transaction that `message` concerns, if any."""
        if "issuerTransactionToken" not in object_of(message):
            return None
        context = self._changes.card_transaction(card_transaction_key_of(message))
        return context.roll_up if context else None

    def _reject(self, message: Message, error: RejectedError) -> Decided:
        self.writes.rejections.append(
            rejection_of(message, error.reason, error.detail, self._changes.now)
        )
        self.fail_transfers([message])
        self._suspense.hold(message, error.reason)
        decided = Decided(message, OutcomeType.REJECTED, reason=error.reason, detail=error.detail)
        if error.reason not in _NOTHING_TO_RETURN:
            back = payment_messages.returned(message, self._changes.now)
            if back is not None:
                self.writes.follow_ups.append(back)
                decided.continues, decided.wakes = True, [back.shard]
        return decided


def _as_rejection(error: RejectedError | AmountOutOfRangeError) -> RejectedError:
    if isinstance(error, RejectedError):
        return error
    return RejectedError(RejectionReason.AMOUNT_OUT_OF_RANGE, str(error))
