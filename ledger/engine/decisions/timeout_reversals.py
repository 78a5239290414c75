"""Timeout reversals: settle an authorization whose approval was not reported in time."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from cardledger.ledger.core import commands
from cardledger.ledger.core.card_transaction import CardTransaction, decide
from cardledger.ledger.core.events import (
    AuthorizationAdjusted,
    AuthorizationCancelled,
    AuthorizationExpired,
    AuthorizationReversed,
    ClearingReversed,
    CreditAdjusted,
    DeclineReason,
    Refunded,
    RefundReversed,
)
from cardledger.ledger.core.money import MAX_AMOUNT, AmountOutOfRangeError
from cardledger.ledger.engine.change_set import ChangeSet
from cardledger.ledger.engine.decisions.network_events import NetworkEvents
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.parsing import (
    RejectedError,
    amount_of,
    card_transaction_key_of,
    key_of,
    timed_out,
)
from cardledger.ledger.engine.records import Decided, Key, OutcomeRow
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections.event_rows import KINDS
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import EventType
from cardledger.schema.wire.outcomes import OutcomeFlag, OutcomeType

# Of what was authorized before, nothing is left to undo: its total was stated, or its rest voided.
_SUPERSEDED: Final = {
    KINDS[kind]
    for kind in (
        AuthorizationAdjusted,
        AuthorizationExpired,
        AuthorizationCancelled,
        CreditAdjusted,
    )
}


class TimeoutReversals:
    """Decides timeout reversals."""

    def __init__(
        self,
        changes: ChangeSet,
        recovery: Recovery,
        network_events: NetworkEvents,
        outcomes: Mapping[Key, OutcomeRow],
    ) -> None:
        """Find recorded authorizations in `outcomes`, which grows as the batch is decided."""
        self._changes: Final = changes
        self._recovery: Final = recovery
        self._network_events: Final = network_events
        self._outcomes: Final = outcomes
        self._applied: Final[set[Id]] = set()  # Those of this batch that have taken something back.

    def settle(self, message: Message) -> Decided:
        """Reverse an authorization that was approved; decline one that is not decided yet.

        After it the authorization has an outcome, so it can never be approved later.
        """
        authorization = timed_out(message)
        first = self._outcomes.get(key_of(authorization))
        if first is None:
            return self._decline(authorization)
        is_approved = first.outcome == OutcomeType.APPLIED
        if is_approved and inbox.repeats(authorization, first.body_hash):
            return self._reverse(message, authorization, first)
        # Declined already, or another event has its key: then it will be rejected.
        return Decided(message, OutcomeType.IGNORED, reason=OutcomeFlag.NOTHING_TO_REVERSE)

    def _decline(self, authorization: Message) -> Decided:
        """Decide `authorization` in the place of its own message, which becomes a duplicate."""
        try:
            return self._network_events.ask(authorization, is_late=True)
        except (RejectedError, AmountOutOfRangeError):
            # It would have been rejected. The outcome is kept, so that it stays declined.
            reason = DeclineReason.DECISION_TIMEOUT
            return Decided(authorization, OutcomeType.DECLINED, reason=reason)

    def _reverse(self, message: Message, authorization: Message, first: OutcomeRow) -> Decided:
        context = self._changes.card_transaction(card_transaction_key_of(authorization))
        assert context is not None, "an approval leaves a card transaction"
        before = context.roll_up.state
        clears = authorization.body["type"] == EventType.FINANCIAL_AUTHORIZATION
        taken_back = self._taken_back(context.roll_up.identity.id, first.message_id, clears=clears)
        left = max(amount_of(authorization.body) - taken_back, 0)
        if authorization.body["type"] == EventType.CREDIT_AUTHORIZATION and not before.is_credit:
            left = 0  # With a purchase, nothing follows from it any more.
        decision = decide(before, _command(before, left, clears=clears)) if left else None
        if decision is None or not decision.facts:
            return Decided(
                message,
                OutcomeType.IGNORED,
                reason=OutcomeFlag.NOTHING_TO_REVERSE,
                roll_up=context.roll_up,
            )
        self._recovery.apply(message, context, decision)
        self._applied.add(message.id)
        return Decided(
            message,
            OutcomeType.APPLIED,
            reason=OutcomeFlag.DECISION_TIMEOUT,
            roll_up=context.roll_up,
        )

    def _taken_back(self, card_transaction_id: Id, message_id: Id, *, clears: bool) -> int:
        """Return what was taken back of the authorization in `message_id`, in minor units.

        A reversal names no authorization. It counts as one of this authorization, also when it came
        first and was parked, so that this one never takes back what another has added. Only a
        timeout reversal has an authorization of its own: what it took back is of no other.
        """
        in_batch = [
            event
            for event in self._changes.writes.events
            if event[0] == card_transaction_id and event[8] not in self._applied
        ]
        own = [sequence for _, sequence, *_, message, _, _ in in_batch if message == message_id]
        start = min(own, default=0)
        since: Counter[str] = Counter()
        for kind, amount in self._changes.snapshot.amounts_since.get(message_id, ()):
            since[kind] += amount
        for _, place, _, kind, amount, *_ in in_batch:
            if place > start:
                since[kind] += amount
        if clears:
            refunded = since[KINDS[Refunded]] - since[KINDS[RefundReversed]]
            return since[KINDS[ClearingReversed]] + max(refunded, 0)
        if not since.keys().isdisjoint(_SUPERSEDED):
            return MAX_AMOUNT
        return since[KINDS[AuthorizationReversed]]


def _command(state: CardTransaction, amount: int, *, clears: bool) -> commands.Command:
    if clears:
        return commands.ReverseClearing(amount=min(amount, state.settled))
    return commands.Reverse(amount=amount)
