"""Timeout reversals: settle an authorization whose approval was not reported in time."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Final

from cardledger.ledger.core import commands
from cardledger.ledger.core.card import CardState
from cardledger.ledger.core.card_transaction import decide
from cardledger.ledger.core.events import (
    AuthorizationAdjusted,
    AuthorizationCancelled,
    AuthorizationExpired,
    AuthorizationReversed,
    Cleared,
    ClearingReversed,
    CreditAdjusted,
    DeclineReason,
    Refunded,
    RefundReversed,
)
from cardledger.ledger.core.money import AmountOutOfRangeError
from cardledger.ledger.core.status import Closure
from cardledger.ledger.engine.change_set import CardTransactionContext, ChangeSet
from cardledger.ledger.engine.decisions.network_events import NetworkEvents
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.parsing import (
    RejectedError,
    amount_of,
    card_transaction_key_of,
    key_of,
    settlement_of,
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
_SUPERSEDED: Final = frozenset(
    KINDS[kind] for kind in (AuthorizationAdjusted, AuthorizationExpired, AuthorizationCancelled)
)
_CREDIT_SUPERSEDED: Final = frozenset(
    KINDS[kind] for kind in (CreditAdjusted, AuthorizationExpired, AuthorizationCancelled)
)


_CLEARED: Final = KINDS[Cleared]


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
        # Of this batch: timeout reversals that have taken something back, and the messages of all
        # authorizations that were settled.
        self._applied: Final[set[Id]] = set()
        self._settled: Final[set[Id]] = set()

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
        self._settled.add(first.message_id)
        command = self._command(context, authorization, first)
        decision = decide(context.roll_up.state, command) if command else None
        if decision is None or not decision.facts:
            return Decided(
                message,
                OutcomeType.IGNORED,
                reason=OutcomeFlag.NOTHING_TO_REVERSE,
                roll_up=context.roll_up,
            )
        fact = decision.facts[0]
        back = fact.amount if isinstance(fact, ClearingReversed) else 0
        self._recovery.apply(_settled_as(message, authorization, back), context, decision)
        self._applied.add(message.id)
        return Decided(
            message,
            OutcomeType.APPLIED,
            reason=OutcomeFlag.DECISION_TIMEOUT,
            roll_up=context.roll_up,
        )

    def _command(
        self, context: CardTransactionContext, authorization: Message, first: OutcomeRow
    ) -> commands.Command | None:
        """Return what takes back the approval of `authorization`; None: nothing is left of it."""
        state, kind = context.roll_up.state, authorization.body["type"]
        amount = amount_of(authorization.body)
        since = self._since(context.roll_up.identity.id, first.message_id)
        is_credit = kind == EventType.CREDIT_AUTHORIZATION
        ends = _CREDIT_SUPERSEDED if is_credit else _SUPERSEDED
        is_superseded = not since.keys().isdisjoint(ends)
        if kind == EventType.FINANCIAL_AUTHORIZATION:
            refunded = max(since[KINDS[Refunded]] - since[KINDS[RefundReversed]], 0)
            card = self._changes.snapshot.cards.get(context.roll_up.identity.card_id)
            return commands.TakeBack(
                # What was refunded has cleared, and stays authorized with that.
                authorized=0 if is_superseded else max(amount - refunded, 0),
                cleared=max(amount - since[KINDS[ClearingReversed]] - refunded, 0),
                reopens=not self._others_cleared(context.roll_up.identity.id, first.message_id),
                is_closed=card is not None and card.state is CardState.CLOSED,
                balance=self._network_events.pullable(context),
            )
        left = max(amount - since[KINDS[AuthorizationReversed]], 0)
        if is_superseded or not left or (is_credit and not state.is_credit):
            return None  # Of a credit with a purchase, nothing follows any more.
        if state.closed_by is Closure.CLEARED:
            # Nothing is held for it; it would be, if that clearing were taken back as well.
            return commands.TakeBack(authorized=min(left, state.outstanding))
        return commands.Reverse(amount=left)

    def _since(self, card_transaction_id: Id, message_id: Id) -> Counter[str]:
        """Return by kind what came after the authorization in `message_id`, in minor units.

        A reversal names no authorization. It counts as one of this authorization, also when it came
        first and was parked, so that this one never takes back what another has added. Only a
        timeout reversal has an authorization of its own: what it took back is of no other.
        """
        in_batch = [
            (sequence, kind, amount, message)
            for subject, sequence, _, kind, amount, *_, message, _, _ in self._changes.writes.events
            if subject == card_transaction_id and message not in self._applied
        ]
        start = min((place for place, *_, message in in_batch if message == message_id), default=0)
        since: Counter[str] = Counter()
        for kind, amount in self._changes.snapshot.amounts_since.get(message_id, ()):
            since[kind] += amount
        for place, kind, amount, _ in in_batch:
            if place > start:
                since[kind] += amount
        return since

    def _others_cleared(self, card_transaction_id: Id, message_id: Id) -> bool:
        """Return whether another clearing than that of `message_id` closed the card transaction.

        One that a timeout reversal has taken back does not count, whichever came first.
        """
        found = {
            message
            for subject, _, _, kind, _, _, final, _, message, _, _ in self._changes.writes.events
            if subject == card_transaction_id and kind == _CLEARED and final
        }
        found.update(self._changes.snapshot.other_clearings.get(message_id, ()))
        return not found <= self._settled


def _settled_as(message: Message, authorization: Message, back: int) -> Message:
    """Return `message` on the day of the network on which `authorization` settled.

    `back`, in minor units, is what of it is given back. So nothing is left of it on that day, and
    its part of the interchange is not earned. The references stay those of the authorization: to
    the network, this is no movement that a line of its file could be about.
    """
    settlement = settlement_of(authorization.body)
    if settlement is None or not back:
        return message
    details = {
        "network": settlement.network,
        "settlementDate": settlement.settlement_date.isoformat(),
        "cycle": settlement.cycle,
    }
    if settlement.interchange is not None:
        earned = Decimal(settlement.interchange) * back / amount_of(authorization.body)
        details["interchange"] = f"{-earned:.6f}"
    # As the reversal of a clearing, which has such details.
    body = {**message.body, "type": EventType.CLEARING_REVERSAL, "settlement": details}
    return replace(message, body=body)
