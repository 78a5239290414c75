"""Adjustments that people have approved: book them, or say why they cannot be booked."""

from dataclasses import replace
from typing import Final

from cardledger.ledger.core.card_transaction import write_off_limit
from cardledger.ledger.core.entries import ChartAccount, Entry
from cardledger.ledger.core.money import AmountOutOfRangeError
from cardledger.ledger.engine.change_set import ChangeSet
from cardledger.ledger.engine.decisions.recovery import Recovery
from cardledger.ledger.engine.decisions.suspense import Suspense
from cardledger.ledger.engine.decisions.write_offs import WriteOffs
from cardledger.ledger.engine.parsing import RejectedError, card_transaction_key_of, id_of
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import UNROUTED, Message
from cardledger.ledger.projections import adjustments
from cardledger.ledger.projections.adjustments import Adjustment
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.schema.wire.common import format_amount
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason


class RefusedError(Exception):
    """An approved adjustment that cannot be booked any more; its text says why."""


class Adjustments:
    """Decides adjustments; what is booked is in the row of one, not in its message."""

    def __init__(self, changes: ChangeSet, recovery: Recovery, suspense: Suspense) -> None:
        self._changes: Final = changes
        self._write_offs: Final = WriteOffs(recovery)
        self._suspense: Final = suspense

    def book(self, message: Message) -> Decided:
        """Book an adjustment on the business day of now, or refuse it."""
        adjustment = self._approved(message)
        # It happens when it is booked, however long its message has waited.
        message = replace(message, received_at=self._changes.now)
        writes = self._changes.writes.adjustments
        try:
            roll_up = self._apply(message, adjustment)
        except (RefusedError, AmountOutOfRangeError) as error:
            writes[adjustment.id] = adjustment.refused(str(error))
            return Decided(message, OutcomeType.DECLINED)
        writes[adjustment.id] = adjustment.booked(at=self._changes.now)
        return Decided(message, OutcomeType.APPLIED, roll_up=roll_up)

    def _approved(self, message: Message) -> Adjustment:
        key = id_of(message.body, "adjustmentId")
        changes = self._changes
        adjustment = changes.writes.adjustments.get(key) or changes.snapshot.adjustments.get(key)
        if adjustment is None or adjustment.state != adjustments.APPROVED:
            raise RejectedError(
                RejectionReason.MALFORMED,
                "Unknown adjustment: adjustmentId does not match an adjustment that is APPROVED.",
            )
        return adjustment

    def _apply(self, message: Message, adjustment: Adjustment) -> RollUp | None:
        """Make the entries of `adjustment`; return its card transaction, if it has one.

        Raises: RefusedError or AmountOutOfRangeError; nothing was recorded.
        """
        if adjustment.kind == adjustments.WRITE_OFF:
            return self._write_off(message, adjustment)
        if adjustment.kind == adjustments.MOVE:
            self._move(message, adjustment)
        else:
            self._resolve_suspense(message, adjustment)
        return None

    def _move(self, message: Message, adjustment: Adjustment) -> None:
        assert adjustment.from_kind is not None
        assert adjustment.to_kind is not None
        entry = Entry(
            debit=ChartAccount(adjustment.from_kind),
            credit=ChartAccount(adjustment.to_kind),
            amount=adjustment.amount,
        )
        self._changes.book_system(
            adjustment.id,
            0,
            [entry],
            customer_id=UNROUTED.customer_id,
            platform_id=adjustment.platform_id,
            currency=adjustment.currency,
            dates=self._changes.dates_of(message),
        )

    def _write_off(self, message: Message, adjustment: Adjustment) -> RollUp:
        context = self._changes.card_transaction(card_transaction_key_of(message))
        if context is None or context.roll_up.identity.id != adjustment.card_transaction_id:
            raise RefusedError("There is no such card transaction.")
        limit = write_off_limit(context.roll_up.state)
        if adjustment.amount > limit:
            raise RefusedError(
                f"The card transaction owes {format_amount(limit, adjustment.currency)} now; at"
                " most that can be written off."
            )
        return self._write_offs.apply(message, context, adjustment.amount)

    def _resolve_suspense(self, message: Message, adjustment: Adjustment) -> None:
        assert adjustment.suspense_id is not None
        item = self._suspense.open.get(adjustment.suspense_id)
        if item is None:
            raise RefusedError("The item of suspense is resolved already.")
        dates = self._changes.dates_of(message)
        self._suspense.settle(item, adjustment_id=adjustment.id, dates=dates)
