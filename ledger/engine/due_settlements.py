"""What files and statements book becomes messages in the inbox, which the engine decides."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.messaging import inbox, settlement_bookings
from cardledger.ledger.messaging.inbox import UNROUTED, Lane, Message, Owner
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage.ids import derived_id
from cardledger.schema.ids import Id

PAGE_LIMIT: Final = 500
"""Bookings that one statement reads."""

_Place = tuple[datetime, Id]  # When it was made, and its id.

_FIRST: Final[_Place] = (datetime(1, 1, 2, tzinfo=UTC), Id(bytes(16)))

# As of adjustments: who holds the lock sees every message that another process has written. One
# whose message was rejected, because of a defect, waits for a retry of the rejection.
_DUE: Final = """
    SELECT b.made_at, b.id, b.platform_id FROM settlement_bookings b
    WHERE b.booked_at IS NULL AND (b.made_at, b.id) > (%s, %s)
    ORDER BY b.made_at, b.id LIMIT %s FOR UPDATE SKIP LOCKED
"""
_REJECTED: Final = "SELECT id FROM rejections WHERE id = ANY(%s)"


class DueSettlements:
    """Enqueues what is to be booked, a page at a time, until its message is decided."""

    is_due: Final = "EXISTS (SELECT FROM settlement_bookings WHERE booked_at IS NULL)"
    """The condition, in SQL, that there is something to enqueue."""

    def __init__(self, key: InboxKey) -> None:
        """Begin with the oldest, and sign with `key`."""
        self._key: Final = key
        self._place: _Place = _FIRST

    def enqueue_due(self, connection: Connection[Any], now: datetime) -> int:
        """Enqueue a page of bookings that are due; return how many messages were written."""
        rows = connection.execute(_DUE, [*self._place, PAGE_LIMIT]).fetchall()
        if not rows:
            self._place = _FIRST
            return 0
        self._place = (rows[-1][0], rows[-1][1]) if len(rows) == PAGE_LIMIT else _FIRST
        messages = [_message(row, now) for row in rows]
        ids = [message.id for message in messages]
        rejected = {key for (key,) in connection.execute(_REJECTED, [ids])}
        connection.execute(inbox.BY_KEY)
        wanted = [message for message in messages if message.id not in rejected]
        return inbox.accept_once(connection, wanted, self._key)


def _message(row: Sequence[Any], at: datetime) -> Message:
    """Return the message of a booking: the same id whenever, and by whichever process."""
    made_at, key, platform_id = row
    body = settlement_bookings.body_of(key)
    owner = Owner(UNROUTED.customer_id, platform_id)
    message = inbox.address(body, owner, lane=Lane.BULK, reply_to=None, at=at)
    message.id = derived_id(f"{settlement_bookings.SOURCE}/{key}", at=made_at)
    return message
