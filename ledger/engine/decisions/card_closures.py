"""Closed cards: what they hold goes back to the funding accounts."""

from typing import Final

from cardledger.ledger.core import commands
from cardledger.ledger.core.card_transaction import decide
from cardledger.ledger.engine.change_set import CardTransactionContext, ChangeSet
from cardledger.ledger.engine.decisions.recovery import ENGINE, Recovery
from cardledger.ledger.engine.parsing import closing_of, owns
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Message
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType


class CardClosures:
    """Decides messages about closed cards."""

    def __init__(self, changes: ChangeSet, recovery: Recovery) -> None:
        self._changes: Final = changes
        self._recovery: Final = recovery

    def release_holds(self, message: Message) -> Decided:
        """Cancel a page of the open card transactions of a closed card, by their creation.

        A message in the bulk lane continues with the next page: however many there are, the other
        messages of the batch wait for one page. The card is closed already, so that no
        authorization is approved in between.
        """
        closing = closing_of(message)
        of_card = [
            context
            for context in self._changes.card_transactions()
            if context.roll_up.identity.card_id == closing.card_id
            and owns(message, context.roll_up.identity)
        ]
        for context in sorted(of_card, key=_id_of):
            # On its current state: the release of another may have paid its open pull.
            decision = decide(context.roll_up.state, commands.Cancel())
            if decision.facts:
                self._recovery.apply(message, context, decision)
        next_after = self._changes.snapshot.closing_pages[closing].next_after
        if next_after is not None:
            self._follow_up(message, next_after)
        return Decided(message, OutcomeType.APPLIED, continues=next_after is not None)

    def _follow_up(self, message: Message, after: str) -> None:
        """Enqueue a message that goes on with the card of `message` behind the token `after`."""
        body = {
            "type": inbox.CARD_CLOSED,
            "source": ENGINE,
            "reference": f"{message.id}/next",
            "cardId": message.body["cardId"],
            "after": after,
        }
        owner = inbox.Owner(message.customer_id, message.platform_id)
        self._changes.writes.follow_ups.append(
            inbox.address(body, owner, lane=inbox.Lane.BULK, reply_to=None, at=self._changes.now)
        )


def _id_of(context: CardTransactionContext) -> Id:
    return context.roll_up.identity.id
