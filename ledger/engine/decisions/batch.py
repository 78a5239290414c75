"""One batch: decide its messages in order, each on the state that its predecessors left."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from cardledger.ledger.engine.change_set import BatchSnapshot, ChangeSet
from cardledger.ledger.engine.decisions.card_closures import CardClosures
from cardledger.ledger.engine.decisions.deposits import Deposits
from cardledger.ledger.engine.decisions.network_events import AUTHORIZATIONS, NetworkEvents
from cardledger.ledger.engine.decisions.rail_answers import RailAnswers
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.decisions.transfers import Transfers
from cardledger.ledger.engine.parsing import (
    RejectedError,
    card_transaction_key_of,
    key_of,
    rejected_error,
    rejection_of,
)
from cardledger.ledger.engine.records import Decided, OutcomeRow
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.ports import FundingRail
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason


class Batch:
    """Decides messages one after the other and collects what has to be written.

    An applied message leaves all its consequences; a rejected message leaves only its rejection.
    """

    def __init__(self, snapshot: BatchSnapshot, *, now: datetime, rail: FundingRail | None) -> None:
        """Start from `snapshot`; `now` is the time of every decision.

        `rail` is the connected funding rail, if any.
        """
        self._changes: Final = ChangeSet(snapshot, now=now)
        self.writes: Final = self._changes.writes
        self._outcomes: Final = dict(snapshot.outcomes)  # Also those of this batch.
        answers = RailAnswers(rail)
        self._recovery: Final = Recovery(self._changes, answers)
        self._network_events: Final = NetworkEvents(self._changes, self._recovery, answers)
        self._card_closures: Final = CardClosures(self._changes, self._recovery)
        self._deposits: Final = Deposits(self._changes, self._recovery)
        self._transfers: Final = Transfers(self._changes, self._recovery)

    @property
    def first_deadline(self) -> datetime | None:
        """The earliest `decideBy` among the approvals of this batch."""
        return self._network_events.first_deadline

    def decide(self, messages: Iterable[Message]) -> list[Decided]:
        """Return the result of each of `messages`, in their order."""
        return [self._decide(message) for message in messages]

    def fail_transfers(self, messages: Iterable[Message]) -> None:
        """Fail the transfers that `messages`, which are rejected, were to carry out."""
        self._transfers.fail(messages)

    def _decide(self, message: Message) -> Decided:
        key = key_of(message)
        size = self.writes.size
        try:
            first = self._outcomes.get(key)
            if first:
                return self._repeat(message, first)
            decided = self._dispatch(message)
        except (RejectedError, KeyError, TypeError, ValueError, AttributeError) as error:
            if self.writes.size != size:
                raise  # Half applied is our fault: the whole batch must be rolled back.
            return self._reject(message, rejected_error(error))
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

    def _dispatch(self, message: Message) -> Decided:
        kind = message.body["type"]
        if kind in AUTHORIZATIONS:
            return self._network_events.authorize(message)
        if kind == inbox.DEPOSIT:
            return self._deposits.receive(message)
        if kind == inbox.TRANSFER:
            return self._transfers.carry_out(message)
        if kind == inbox.CARD_CLOSED:
            return self._card_closures.release_holds(message)
        if kind == inbox.RECOVERY:
            return self._recovery.resume(message)
        return self._network_events.record(message)

    def _repeat(self, message: Message, first: OutcomeRow) -> Decided:
        if first.body_hash != message.body_hash:
            raise RejectedError(
                RejectionReason.KEY_REUSED,
                "Reference was already used for a different event; use a new reference.",
            )
        return Decided(
            message,
            OutcomeType.DUPLICATE,
            reason=first.reason,
            first_outcome=OutcomeType(first.outcome),
            roll_up=self._current(message),
        )

    def _current(self, message: Message) -> RollUp | None:
        """Return the current roll-up of the card transaction that `message` concerns, if any."""
        if "issuerTransactionToken" not in message.body:
            return None
        context = self._changes.card_transaction(card_transaction_key_of(message))
        return context.roll_up if context else None

    def _reject(self, message: Message, error: RejectedError) -> Decided:
        self.writes.rejections.append(
            rejection_of(message, error.reason, error.detail, self._changes.now)
        )
        self.fail_transfers([message])
        return Decided(message, OutcomeType.REJECTED, reason=error.reason, detail=error.detail)
