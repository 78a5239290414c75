"""Write-offs: the operator gives up what a card transaction owes."""

from typing import Final

from cardledger.ledger.core import commands
from cardledger.ledger.core.card_transaction import decide, write_off_limit
from cardledger.ledger.engine.change_set import CardTransactionContext
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.parsing import RejectedError
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.schema.wire.outcomes import RejectionReason


class WriteOffs:
    """Applies write-offs that people have approved."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery: Final = recovery

    def apply(self, message: Message, context: CardTransactionContext, amount: int) -> RollUp:
        """Write off `amount`, which `message` asks for, of what `context` owes.

        Units: `amount` > 0 minor units of the currency of the card transaction. The caller has
        checked that `context` belongs to the customer of `message`.
        Raises: RejectedError when less is owed; nothing was changed.
        """
        before = context.roll_up.state
        decision = decide(before, commands.WriteOff(amount=amount))
        if not decision.facts:
            limit = write_off_limit(before)
            raise RejectedError(
                RejectionReason.NOT_OWED,
                f"Only {limit} minor units are owed, less than the {amount} to be written off.",
            )
        self._recovery.apply(message, context, decision)
        return context.roll_up
