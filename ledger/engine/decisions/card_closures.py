"""Closed cards: what they hold goes back to the funding accounts."""

from typing import Final

from cardledger.ledger.core import commands
from cardledger.ledger.core.card_transaction import decide
from cardledger.ledger.engine.change_set import CardTransactionContext, ChangeSet
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.parsing import card_id_of
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import Message
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType


class CardClosures:
    """Decides messages about closed cards."""

    def __init__(self, changes: ChangeSet, recovery: Recovery) -> None:
        self._changes: Final = changes
        self._recovery: Final = recovery

    def release_holds(self, message: Message) -> Decided:
        """Cancel the open card transactions of a closed card, in the order of their creation."""
        card_id = card_id_of(message.body["cardId"])
        of_card = [
            context
            for context in self._changes.card_transactions()
            if context.key.card_id == card_id and context.key.customer_id == message.customer_id
        ]
        for context in sorted(of_card, key=_id_of):
            # On its current state: the release of another may have paid its open pull.
            decision = decide(context.roll_up.state, commands.Cancel())
            if decision.facts:
                self._recovery.apply(message, context, decision)
        return Decided(message, OutcomeType.APPLIED)


def _id_of(context: CardTransactionContext) -> Id:
    return context.roll_up.identity.id
