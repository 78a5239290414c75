"""Timeout reversals: settle an authorization whose approval was not reported in time."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Final, NamedTuple

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
from cardledger.ledger.core.late_approvals import (
    ApprovalKind,
    LateApproval,
    NetworkReversal,
    claims,
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
from cardledger.ledger.engine.records import Decided, EventAmount, Key, LateHistory, OutcomeRow
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
_KINDS: Final = {
    EventType.FINANCIAL_AUTHORIZATION: ApprovalKind.FINANCIAL,
    EventType.CREDIT_AUTHORIZATION: ApprovalKind.CREDIT,
}
# What the network takes back by these: its sign, and whether it is a refund.
_OF_HOLDS: Final = {KINDS[AuthorizationReversed]: (1, False)}
_OF_CLEARINGS: Final = {
    KINDS[ClearingReversed]: (1, False),
    KINDS[Refunded]: (1, True),
    KINDS[RefundReversed]: (-1, True),
}
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
        # Of this batch: timeout reversals that have taken something back; the messages of all
        # authorizations that have one; and these by their card transactions.
        self._applied: Final[set[Id]] = set()
        self._reversed: Final[set[Id]] = set()
        self._late: Final[defaultdict[Id, list[LateApproval]]] = defaultdict(list)

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
        history = self._history(context.roll_up.identity.id)
        late = LateApproval(
            kind=_KINDS.get(authorization.body["type"], ApprovalKind.HOLD),
            amount=amount_of(authorization.body),
            approved_at=history.approved_at[first.message_id],
            reversed_at=context.roll_up.state.sequence,
        )
        command = self._command(context, late, history, first.message_id)
        decision = decide(context.roll_up.state, command) if command else None
        outcome, reason = OutcomeType.IGNORED, OutcomeFlag.NOTHING_TO_REVERSE
        if decision is not None and decision.facts:
            fact = decision.facts[0]
            back = fact.amount if isinstance(fact, ClearingReversed) else 0
            self._recovery.apply(_settled_as(message, authorization, back), context, decision)
            self._applied.add(message.id)
            outcome, reason = OutcomeType.APPLIED, OutcomeFlag.DECISION_TIMEOUT
        self._reversed.add(first.message_id)
        self._late[context.roll_up.identity.id].append(late)
        return Decided(message, outcome, reason=reason, roll_up=context.roll_up)

    def _command(
        self,
        context: CardTransactionContext,
        late: LateApproval,
        history: LateHistory,
        message_id: Id,
    ) -> commands.Command | None:
        """Return what takes back the approval `late` of `message_id`; None: nothing is left."""
        identity, state = context.roll_up.identity, context.roll_up.state
        left = _left(late, history)
        if late.kind is ApprovalKind.FINANCIAL:
            card = self._changes.snapshot.cards.get(identity.card_id)
            return commands.TakeBack(
                authorized=left.authorized,
                cleared=left.cleared,
                reopens=not self._others_cleared(identity.id, message_id),
                is_closed=card is not None and card.state is CardState.CLOSED,
                balance=self._network_events.pullable(context),
            )
        is_purchase = late.kind is ApprovalKind.CREDIT and not state.is_credit
        if not left.authorized or is_purchase:
            return None  # Of a credit with a purchase, nothing follows any more.
        if state.closed_by is Closure.CLEARED:
            # Nothing is held for it; it would be, if that clearing were taken back as well.
            return commands.TakeBack(authorized=min(left.authorized, state.outstanding))
        return commands.Reverse(amount=left.authorized)

    def _history(self, card_transaction_id: Id) -> LateHistory:
        """Return the history of a card transaction with what this batch has added to it.

        Without its clearings; its approvals are all that this batch has made or reverses.
        """
        known = self._changes.snapshot.late_histories.get(card_transaction_id) or LateHistory()
        approved_at: dict[Id, int] = {}
        events = [*known.events]
        for subject, sequence, _, kind, amount, *_, message, _, _ in self._changes.writes.events:
            if subject != card_transaction_id:
                continue
            approved_at.setdefault(message, sequence)
            if message not in self._applied:
                events.append(EventAmount(sequence, kind, amount))
        return LateHistory(
            approved_at=approved_at | known.approved_at,
            reversed=[*known.reversed, *self._late[card_transaction_id]],
            events=events,
        )

    def _others_cleared(self, card_transaction_id: Id, message_id: Id) -> bool:
        """Return whether another clearing than that of `message_id` closed the card transaction.

        One that a timeout reversal has taken back does not count, whichever came first.
        """
        found = {
            message
            for subject, _, _, kind, _, _, final, _, message, _, _ in self._changes.writes.events
            if subject == card_transaction_id and kind == _CLEARED and final
        }
        history = self._changes.snapshot.late_histories.get(card_transaction_id)
        if history is not None:
            found |= history.clearings
        return bool(found - self._reversed - {message_id})


class _Left(NamedTuple):
    """What no later event has taken back of a late approval, in minor units."""

    authorized: int
    cleared: int


def _left(late: LateApproval, history: LateHistory) -> _Left:
    """Return what is left of the approval `late`.

    A network reversal that follows the approval belongs to it, also when the reversal came first
    and was parked: a timeout reversal never takes back what another authorization has added. Not
    so where it belongs to another late approval (`claims`).
    """
    ends = _CREDIT_SUPERSEDED if late.kind is ApprovalKind.CREDIT else _SUPERSEDED
    superseded_at = max(
        (sequence for sequence, kind, _ in history.events if kind in ends), default=0
    )
    is_superseded = late.approved_at < superseded_at
    alike = [each for each in [*history.reversed, late] if each.kind is late.kind]
    if late.kind is ApprovalKind.FINANCIAL:
        _, claim = claims(alike, _reversals(history.events, _OF_CLEARINGS))[-1]
        # What was refunded has cleared, and stays authorized with that.
        authorized = late.amount - claim.refunded
        return _Left(0 if is_superseded else authorized, authorized - claim.reversed)
    if is_superseded:
        return _Left(0, 0)
    alike = [each for each in alike if each.approved_at >= superseded_at]
    _, claim = claims(alike, _reversals(history.events, _OF_HOLDS))[-1]
    return _Left(late.amount - claim.reversed, 0)


def _reversals(
    events: Iterable[EventAmount], kinds: Mapping[str, tuple[int, bool]]
) -> Iterator[NetworkReversal]:
    for sequence, kind, amount in events:
        if kind in kinds:
            sign, is_refund = kinds[kind]
            yield NetworkReversal(sequence, sign * amount, is_refund)


def _settled_as(message: Message, authorization: Message, back: int) -> Message:
    """Return `message` on the day of the network on which `authorization` settled.

    `back`, in minor units, is what of it is given back. So nothing is left of it on that day, and
    its part of the interchange is not earned, unless a network reversal of another day belongs to
    it. The references stay those of the authorization: to
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
