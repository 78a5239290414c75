"""What time does to card transactions: authorizations expire, pending pulls are answered.

Time speaks as everybody else does, through the inbox: what is due becomes a message, and the
engine decides it in its turn.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import PULL_CONFIRMATION, Lane, Message, Owner, address
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.network_events import EventType

SOURCE: Final = "schedule"
_MANY: Final = 500

_FIRST: Final = (datetime(1, 1, 2, tzinfo=UTC), Id(bytes(16)))  # Before every card transaction.

_EXPIRED_AFTER: Final = (
    "SELECT customer_id, platform_id, card_id, issuer_transaction_token, currency, id, expires_at"
    " FROM card_transactions WHERE expires_at <= %s AND (expires_at, id) > (%s, %s)"
    " ORDER BY expires_at, id LIMIT %s"
)
_ANSWERED: Final = (
    "DELETE FROM pending_pulls p USING ("
    "SELECT card_transaction_id, sequence, customer_id FROM pending_pulls WHERE due_at <= %s"
    " ORDER BY due_at LIMIT %s FOR UPDATE SKIP LOCKED) d, card_transactions t"
    " WHERE (p.card_transaction_id, p.sequence, p.customer_id)"
    " = (d.card_transaction_id, d.sequence, d.customer_id)"
    " AND (t.id, t.customer_id) = (p.card_transaction_id, p.customer_id)"
    " RETURNING p.customer_id, t.platform_id, p.card_id, p.issuer_transaction_token, t.currency,"
    " p.card_transaction_id, p.sequence, p.amount, p.succeeds"
)


def enqueue_due(connection: Connection[Any], now: datetime) -> int:
    """Put what is due at `now` into the inbox, at most 500 of each; return how much that was.

    An authorization stays due until its expiry is decided, so its message may come twice: both
    have the same key.
    """
    return _enqueue(connection, [*_expiries(connection, now), *_confirmations(connection, now)])


def enqueue_all_due(connection: Connection[Any], now: datetime) -> int:
    """Put everything that is due at `now` into the inbox; return how much that was."""
    total, last = 0, _FIRST
    while rows := connection.execute(_EXPIRED_AFTER, [now, *last, _MANY]).fetchall():
        total += _enqueue(connection, [_expiry(row, now) for row in rows])
        last = rows[-1][6], rows[-1][5]
    while messages := _confirmations(connection, now):
        total += _enqueue(connection, messages)
    return total


def _enqueue(connection: Connection[Any], messages: Sequence[Message]) -> int:
    inbox.accept(connection, messages)
    return len(messages)


def _expiries(connection: Connection[Any], now: datetime) -> list[Message]:
    rows = connection.execute(_EXPIRED_AFTER, [now, *_FIRST, _MANY]).fetchall()
    return [_expiry(row, now) for row in rows]


def _expiry(row: Sequence[Any], now: datetime) -> Message:
    customer, platform, card, token, currency, key, expires_at = row
    said = {
        "type": EventType.AUTHORIZATION_EXPIRY.value,
        "reference": f"{key}/expires/{expires_at:%Y%m%dT%H%M%S.%f}",
        "expiresAt": expires_at.isoformat(),
    }
    return _message((customer, platform, card, token, currency), said, Lane.BULK, now)


def _confirmations(connection: Connection[Any], now: datetime) -> list[Message]:
    rows = connection.execute(_ANSWERED, [now, _MANY]).fetchall()
    return [
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
        for customer, platform, card, token, currency, key, sequence, amount, succeeds in rows
    ]


def _message(
    concerned: tuple[Id, Id, Id, str, str], said: Mapping[str, Any], lane: Lane, at: datetime
) -> Message:
    customer_id, platform_id, card_id, token, currency = concerned
    body = {
        "source": SOURCE,
        "issuerTransactionToken": token,
        "cardId": public_id("Card", card_id),
        "currency": currency,
        **said,
    }
    return address(body, Owner(customer_id, platform_id), lane=lane, reply_to=None, at=at)
