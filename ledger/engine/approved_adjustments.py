"""Approved adjustments become messages in the inbox, which the engine decides like any other."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import UNROUTED, Lane, Message, Owner
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.projections.adjustments import SOURCE
from cardledger.ledger.storage.ids import derived_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id

PAGE_LIMIT: Final = 500
"""Adjustments that one statement reads."""

_Place = tuple[datetime, Id]  # When it was approved, and its id.

_FIRST: Final[_Place] = (datetime(1, 1, 2, tzinfo=UTC), Id(bytes(16)))

# Who holds the lock sees every message that another process has written, and no adjustment that a
# batch has booked: it is not APPROVED any more.
_APPROVED: Final = """
    SELECT a.decided_at, a.id, a.platform_id, coalesce(t.customer_id, s.customer_id), t.card_id,
        t.issuer_transaction_token
    FROM adjustments a
    LEFT JOIN card_transactions t ON t.id = a.card_transaction_id
    LEFT JOIN suspense_items s ON s.id = a.suspense_id
    WHERE a.state = 'APPROVED' AND (a.decided_at, a.id) > (%s, %s)
    ORDER BY a.decided_at, a.id LIMIT %s FOR UPDATE OF a SKIP LOCKED
"""
_REJECTED: Final = "SELECT id, reason, detail FROM rejections WHERE id = ANY(%s)"
_REFUSE: Final = """
    UPDATE adjustments SET state = 'REFUSED', refusal = %s WHERE id = %s AND state = 'APPROVED'
"""


class ApprovedAdjustments:
    """Enqueues what is approved, a page at a time, until its message is decided.

    Whether a message is there already is for `inbox.accept_once` to say, whose id it has whichever
    process enqueues it. A page is followed by the next one, so that messages that wait in a queue
    that cannot move keep no others back.
    """

    is_due: Final = "EXISTS (SELECT FROM adjustments WHERE state = 'APPROVED')"
    """The condition, in SQL, that there is something to enqueue."""

    def __init__(self, key: InboxKey) -> None:
        """Begin with the oldest, and sign with `key`."""
        self._key: Final = key
        self._place: _Place = _FIRST

    def enqueue_due(self, connection: Connection[Any], now: datetime) -> int:
        """Enqueue a page of approved adjustments; return how many messages were written.

        One whose message was rejected, because of a defect, is refused: no other message will come.
        """
        rows = connection.execute(_APPROVED, [*self._place, PAGE_LIMIT]).fetchall()
        if not rows:
            self._place = _FIRST
            return 0
        self._place = (rows[-1][0], rows[-1][1]) if len(rows) == PAGE_LIMIT else _FIRST
        messages = [_message(row, now) for row in rows]
        rejected = _rejected(connection, [message.id for message in messages])
        for message in messages:
            if message.id in rejected:
                connection.execute(_REFUSE, [rejected[message.id], message.reference])
        connection.execute(inbox.BY_KEY)
        wanted = [message for message in messages if message.id not in rejected]
        return inbox.accept_once(connection, wanted, self._key)


def _rejected(connection: Connection[Any], ids: Sequence[Id]) -> dict[Id, str]:
    """Return why the messages with `ids` were rejected, if they were."""
    return {
        key: f"Its message was rejected ({reason}): {detail}"
        for key, reason, detail in connection.execute(_REJECTED, [list(ids)])
    }


def _message(row: Sequence[Any], at: datetime) -> Message:
    """Return the message of an adjustment: the same id whenever, and by whichever process."""
    decided_at, key, platform_id, customer_id, card_id, token = row
    body: dict[str, Any] = {
        "type": inbox.ADJUSTMENT,
        "source": SOURCE,
        "reference": str(key),
        "adjustmentId": str(key),
        **_target(card_id, token),
    }
    owner = Owner(customer_id or UNROUTED.customer_id, platform_id)
    message = inbox.address(body, owner, lane=Lane.BULK, reply_to=None, at=at)
    message.id = derived_id(f"{SOURCE}/{key}", at=decided_at)
    return message


def _target(card_id: Id | None, token: str | None) -> Mapping[str, Any]:
    """Return what says which card transaction is to be loaded, if any."""
    if card_id is None:
        return {}
    return {"cardId": public_id("Card", card_id), "issuerTransactionToken": token}
