"""Timers of card transactions: authorizations expire, pending pulls are confirmed.

A timer that is due becomes a message in the inbox, which the engine decides like any other.
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
_TIMER_LIMIT: Final = 500

_FIRST: Final = (datetime(1, 1, 2, tzinfo=UTC), Id(bytes(16)))  # Before every card transaction.

_EXPIRED_AFTER: Final = (
    "SELECT customer_id, platform_id, card_id, issuer_transaction_token, currency, id, expires_at"
    " FROM card_transactions WHERE expires_at <= %s AND (expires_at, id) > (%s, %s)"
    " ORDER BY expires_at, id LIMIT %s"
)
_CONFIRMED: Final = (
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
    """Enqueue messages for the timers due at `now`, at most 500 of each kind; return how many.

    An authorization stays due until its expiry is decided, so its message may be enqueued twice:
    with the same idempotency key.
    """
    return _enqueue(connection, [*_expiries(connection, now), *_confirmations(connection, now)])


def enqueue_all_due(connection: Connection[Any], now: datetime) -> int:
    """Enqueue messages for every timer that is due at `now`; return how many."""
    total, last = 0, _FIRST
    while rows := connection.execute(_EXPIRED_AFTER, [now, *last, _TIMER_LIMIT]).fetchall():
        total += _enqueue(connection, [_expiry(row, now) for row in rows])
        last = rows[-1][6], rows[-1][5]
    while messages := _confirmations(connection, now):
        total += _enqueue(connection, messages)
    return total


def _enqueue(connection: Connection[Any], messages: Sequence[Message]) -> int:
    inbox.accept(connection, messages)
    return len(messages)


def _expiries(connection: Connection[Any], now: datetime) -> list[Message]:
    rows = connection.execute(_EXPIRED_AFTER, [now, *_FIRST, _TIMER_LIMIT]).fetchall()
    return [_expiry(row, now) for row in rows]


def _expiry(row: Sequence[Any], now: datetime) -> Message:
    customer, platform, card, token, currency, key, expires_at = row
    event = {
        "type": EventType.AUTHORIZATION_EXPIRY.value,
        "reference": f"{key}/expires/{expires_at:%Y%m%dT%H%M%S.%f}",
        "expiresAt": expires_at.isoformat(),
    }
    return _message((customer, platform, card, token, currency), event, Lane.BULK, now)


def _confirmations(connection: Connection[Any], now: datetime) -> list[Message]:
    rows = connection.execute(_CONFIRMED, [now, _TIMER_LIMIT]).fetchall()
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
