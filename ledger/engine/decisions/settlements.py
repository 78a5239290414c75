"""What files of networks and statements of the bank book, beside the events of cards."""

from dataclasses import replace
from typing import Final

from cardledger.ledger.core.entries import ChartAccount, Entry
from cardledger.ledger.engine.change_set import ChangeSet
from cardledger.ledger.engine.parsing import RejectedError, id_of
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import UNROUTED, Message
from cardledger.ledger.projections.settlement_bookings import SettlementBooking
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason


class Settlements:
    """Decides bookings of files; what is booked is in the row of one, not in its message."""

    def __init__(self, changes: ChangeSet) -> None:
        self._changes: Final = changes

    def book(self, message: Message) -> Decided:
        """Make the entry of a booking, posted on its day, or on the first open one."""
        booking = self._due(message)
        changes = self._changes
        # It happens when it is booked, however long its message has waited.
        message = replace(message, received_at=changes.now)
        entry = Entry(
            debit=ChartAccount(booking.from_kind),
            credit=ChartAccount(booking.to_kind),
            amount=booking.amount,
        )
        changes.book_system(
            booking.id,
            0,
            [entry],
            customer_id=UNROUTED.customer_id,
            platform_id=booking.platform_id,
            currency=booking.currency,
            dates=changes.dates_on(booking.posted_for, network=booking.network),
        )
        changes.writes.settlement_bookings[booking.id] = booking.booked(at=changes.now)
        return Decided(message, OutcomeType.APPLIED)

    def _due(self, message: Message) -> SettlementBooking:
        key = id_of(message.body, "bookingId")
        changes = self._changes
        booking = changes.writes.settlement_bookings.get(
            key
        ) or changes.snapshot.settlement_bookings.get(key)
        if booking is None or booking.booked_at is not None:
            raise RejectedError(
                RejectionReason.MALFORMED,
                "Unknown booking: bookingId does not match a settlement booking that is due.",
            )
        return booking
