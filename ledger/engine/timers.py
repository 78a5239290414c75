"""Timers: authorizations expire, pending pulls are confirmed, payments take their next step.

A timer that is due becomes a message in the inbox, which the engine decides like any other. A pull
is confirmed in the name of the funding rail that accepted it: while no rail is connected, a pending
pull stays pending, and its amount held, however long it has been due.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import PULL_CONFIRMATION, Lane, Message, Owner, address
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage.ids import derived_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.network_events import EventType

SOURCE: Final = "schedule"
PAGE_LIMIT: Final = 500
"""Timers of one kind that one statement reads."""

_Place = tuple[datetime, Id]  # In the order of expiries: when, and which card transaction.

_FIRST: Final[_Place] = (datetime(1, 1, 2, tzinfo=UTC), Id(bytes(16)))

_EXPIRED_AFTER: Final = """
    SELECT customer_id, platform_id, card_id, issuer_transaction_token, currency, id, expires_at
    FROM card_transactions WHERE expires_at <= %s AND (expires_at, id) > (%s, %s)
    ORDER BY expires_at, id LIMIT %s
"""


_DUE_WITHOUT_RAIL: Final = (
    "EXISTS (SELECT FROM card_transactions WHERE expires_at <= now())",
    "EXISTS (SELECT FROM transfers WHERE due_at <= now())",
)
_DUE: Final = (*_DUE_WITHOUT_RAIL, "EXISTS (SELECT FROM pending_pulls WHERE due_at <= now())")


class Timers:
    """Enqueues what is due, a bounded number of timers at a time.

    An authorization stays due until its expiry is decided. So two places are kept in the order of
    expiries: the first follows those that become due, however many before it wait in a queue that
    cannot move; the second goes over all that are due, again and again, and enqueues those whose
    message is missing. Both are only a matter of time: a message that waits, or that was rejected,
    is not written again, whichever process enqueues it (`inbox.accept_once`).
    """

    def __init__(self, key: InboxKey, *, rail_connected: bool = True) -> None:
        """Begin with the oldest, and sign with `key`.

        Without a rail, confirm no pull and continue no payment that is at a bank.
        """
        self._key: Final = key
        self._rail_connected: Final = rail_connected
        self.is_due: Final = " OR ".join(_DUE if rail_connected else _DUE_WITHOUT_RAIL)
        """The condition, in SQL, that there may be something to enqueue."""
        self._newest: _Place = _FIRST
        self._reviewed: _Place = _FIRST
        self._payments: _Place = _FIRST

    def enqueue_due(self, connection: Connection[Any], now: datetime) -> int:
        """Enqueue timers due at `now`, at most two pages of expiries and one of confirmations.

        Returns how many messages were written.
        """
        connection.execute(inbox.BY_KEY)
        recent = _expired_after(connection, now, self._newest)
        review = _expired_after(connection, now, self._reviewed)
        due = {message.id: message for _, message in recent + review}
        written = inbox.accept_once(connection, list(due.values()), self._key)
        if recent:
            self._newest = recent[-1][0]
        self._reviewed = review[-1][0] if len(review) == PAGE_LIMIT else _FIRST
        if self._rail_connected:
            written += _enqueue_confirmations(connection, now, self._key)
        # Again and again over all that are due: some may wait in a queue that cannot move.
        payments, self._payments = _enqueue_payments(
            connection, now, self._key, self._payments, rail_connected=self._rail_connected
        )
        return written + payments


def enqueue_all_due(
    connection: Connection[Any], now: datetime, key: InboxKey, *, rail_connected: bool = True
) -> Iterator[int]:
    """Enqueue messages for every timer that is due at `now`, page by page, signed with `key`.

    `now` may be in the future: the messages say that they are wanted as of then. Without a funding
    rail, no pull is confirmed, and no payment goes on that is at a bank.

    Yields how many messages each page has written, for the caller to commit.
    """
    last = _FIRST
    while page := _expired_after(connection, now, last):
        connection.execute(inbox.BY_KEY)
        messages = [_as_of(message, now) for _, message in page]
        yield inbox.accept_once(connection, messages, key)
        last = page[-1][0]
    while rail_connected and (written := _enqueue_confirmations(connection, now, key)):
        yield written
    last = _FIRST
    while True:
        connection.execute(inbox.BY_KEY)
        written, last = _enqueue_payments(connection, now, key, last, rail_connected=rail_connected)
        if written:
            yield written
        if last == _FIRST:
            return


_DUE_PAYMENTS: Final = """
    SELECT id, customer_id, platform_id, due_at FROM transfers
    WHERE due_at <= %s AND (due_at, id) > (%s, %s)
        AND (%s OR peer_id IS NOT NULL OR kind = 'RECEIVED')
    ORDER BY due_at, id LIMIT %s
"""


def _enqueue_payments(
    connection: Connection[Any],
    now: datetime,
    key: InboxKey,
    place: _Place,
    *,
    rail_connected: bool,
) -> tuple[int, _Place]:
    """Enqueue the next step of a page of payments after `place`; each stays due until it is taken.

    Steps of the rail are left out while none is connected.
    Returns how many messages were written, and where the next page begins.
    """
    rows = connection.execute(_DUE_PAYMENTS, [now, *place, rail_connected, PAGE_LIMIT]).fetchall()
    messages = []
    for payment, customer, platform, due_at in rows:
        reference = f"{payment}/due/{due_at:%Y%m%dT%H%M%S.%f}"
        body = {
            "type": inbox.TRANSFER_DUE,
            "source": SOURCE,
            "reference": reference,
            "transferId": str(payment),
        }
        owner = Owner(customer, platform)
        message = address(body, owner, lane=Lane.LIVE, reply_to=None, at=now)
        message.id = derived_id(reference, at=due_at)
        messages.append(message)
    written = inbox.accept_once(connection, messages, key)
    return written, (rows[-1][3], rows[-1][0]) if len(rows) == PAGE_LIMIT else _FIRST


def _expired_after(
    connection: Connection[Any], now: datetime, place: _Place
) -> list[tuple[_Place, Message]]:
    """Return a page of the expiries due at `now` that follow `place`, each with its own place."""
    cursor = connection.execute(_EXPIRED_AFTER, [now, *place, PAGE_LIMIT])
    return [((row[6], row[5]), _expiry(row, now)) for row in cursor]


def _expiry(row: Sequence[Any], now: datetime) -> Message:
    """Return the message of an expiry: the same id whenever, and by whichever process."""
    customer, platform, card, token, currency, key, expires_at = row
    reference = f"{key}/expires/{expires_at:%Y%m%dT%H%M%S.%f}"
    event = {
        "type": EventType.AUTHORIZATION_EXPIRY.value,
        "reference": reference,
        "expiresAt": expires_at.isoformat(),
    }
    message = _message((customer, platform, card, token, currency), event, Lane.BULK, now)
    message.id = derived_id(reference, at=expires_at)
    return message


def _as_of(message: Message, moment: datetime) -> Message:
    """Return `message`, an expiry, to be decided as if it was `moment`."""
    return replace(message, body={**message.body, "asOf": moment.isoformat()})


_CONFIRMED: Final = """
    DELETE FROM pending_pulls p USING (
        SELECT card_transaction_id, sequence, customer_id FROM pending_pulls
        WHERE due_at <= %s ORDER BY due_at LIMIT %s FOR UPDATE SKIP LOCKED
    ) d, card_transactions t
    WHERE (p.card_transaction_id, p.sequence, p.customer_id)
            = (d.card_transaction_id, d.sequence, d.customer_id)
        AND (t.id, t.customer_id) = (p.card_transaction_id, p.customer_id)
    RETURNING p.customer_id, t.platform_id, p.card_id, p.issuer_transaction_token, t.currency,
        p.card_transaction_id, p.sequence, p.amount, p.succeeds
"""


def _enqueue_confirmations(connection: Connection[Any], now: datetime, inbox_key: InboxKey) -> int:
    """Enqueue a page of confirmations; each leaves its table in the same commit."""
    messages = [
        _message(
            (customer, platform, card, token, currency),
            {
                "type": PULL_CONFIRMATION,
                "reference": f"{key}/{sequence}/confirmation",
                "amount": amount,
                "succeeded": succeeds,
            },
            Lane.LIVE,
            now,
        )
        for customer, platform, card, token, currency, key, sequence, amount, succeeds in (
            connection.execute(_CONFIRMED, [now, PAGE_LIMIT])
        )
    ]
    inbox.accept(connection, messages, inbox_key)
    return len(messages)


def _message(
    route: tuple[Id, Id, Id, str, str], event: Mapping[str, Any], lane: Lane, at: datetime
) -> Message:
    customer_id, platform_id, card_id, token, currency = route
    body = {
        "source": SOURCE,
        "issuerTransactionToken": token,
        "cardId": public_id("Card", card_id),
        "currency": currency,
        **event,
    }
    return address(body, Owner(customer_id, platform_id), lane=lane, reply_to=None, at=at)
