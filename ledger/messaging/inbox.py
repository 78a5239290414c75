"""The inbox: a message is committed here before its sender is notified that it is accepted.

It stays in `inbox` until a batch decides it. The same commit deletes it and writes its outcome to
`outcomes`, under its idempotency key: source and reference, permanently.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Final

from psycopg import AsyncConnection, Connection
from pydantic_core import to_json

from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.bulk_writes import BulkInsert
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id

SHARDS: Final = 16
"""Queues per lane. A cardholder is in one, so an account is only changed by one queue a lane."""

DEPOSIT: Final = "DEPOSIT"
"""Type of the message that funds an internal account; not a network event."""

TRANSFER: Final = "TRANSFER"
"""Type of the message that carries out a transfer; sent when the transfer is approved."""

TRANSFER_CANCELLATION: Final = "TRANSFER_CANCELLATION"
"""Type of the message that cancels a payment that was not handed over."""

TRANSFER_APPROVAL: Final = "TRANSFER_APPROVAL"
"""Type of the message that decides about a payment that has arrived and needs approval."""

TRANSFER_ARRIVAL: Final = "TRANSFER_ARRIVAL"
"""Type of the message by which a payment arrives, of another owner or from outside."""

TRANSFER_RECEIPT: Final = "TRANSFER_RECEIPT"
"""Type of the message that tells the sender of a payment what became of it."""

TRANSFER_FEE: Final = "TRANSFER_FEE"
"""Type of the message that credits a platform with the fee of a payment."""

TRANSFER_DUE: Final = "TRANSFER_DUE"
"""Type of the message that continues a payment whose next step is due; sent by a timer."""

RAIL_ANSWER: Final = "RAIL_ANSWER"
"""Type of the message that tells what a payment rail has done with a payment."""

TRANSFER_REFUND: Final = "TRANSFER_REFUND"
"""Type of the message that refunds a payment whose refund has failed; sent by the operator."""

OF_TRANSFERS: Final = frozenset(
    {TRANSFER, TRANSFER_CANCELLATION, TRANSFER_APPROVAL, TRANSFER_RECEIPT, TRANSFER_DUE,
     RAIL_ANSWER, TRANSFER_REFUND}
)  # fmt: skip
"""The types of the messages that name a transfer, which is locked before they are decided."""

ARRIVALS: Final = frozenset({TRANSFER_ARRIVAL, TRANSFER_FEE})
"""The types of the messages by which a payment comes to be."""

OF_PAYMENTS: Final = OF_TRANSFERS | ARRIVALS
"""The types of all messages of transfers and payments."""

CARD_CLOSED: Final = "CARD_CLOSED"
"""Type of the message that releases the holds of a card; sent when the card is closed."""

RECOVERY: Final = "RECOVERY"
"""Type of the message that continues a long queue of debts; the engine sends it to itself."""

PULL_CONFIRMATION: Final = "PULL_CONFIRMATION"
"""Type of the message that confirms or fails a pending pull; sent by a timer."""

SUSPENSE: Final = "SUSPENSE"
"""Type of the message that books what an event moved which was rejected outside of the engine."""
ADJUSTMENT: Final = "ADJUSTMENT"
"""Type of the message that books an adjustment; sent when a person has approved it."""

SETTLEMENT_BOOKING: Final = "SETTLEMENT_BOOKING"
"""Type of the message that books what a file or a statement says; sent when it was imported."""


class Lane(IntEnum):
    """Two queues a shard, so that a file of clearings never delays an authorization."""

    LIVE = 0
    BULK = 1


@dataclass(slots=True)
class Message:
    """A row of `inbox`."""

    lane: Lane
    shard: int
    id: Id
    customer_id: Id
    platform_id: Id
    source: str
    reference: str
    body: Mapping[str, Any]
    body_hash: bytes
    reply_to: str | None
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Owner:
    """The cardholder whose money a message moves, and their platform."""

    customer_id: Id
    platform_id: Id


@dataclass(frozen=True, slots=True)
class CardRoute:
    """The owner and the currency of the messages of a card; they never change."""

    owner: Owner
    currency: str


UNROUTED: Final = Owner(customer_id=Id(bytes(16)), platform_id=Id(bytes(16)))
"""The owner of a message whose card is unknown."""

CANARIES_FROM: Final = Id(bytes([0xFF] * 15 + [0xF0]))
"""Customers from this id on do not exist: their messages are canaries, which leave nothing behind.

The trigger that records acceptances leaves them out. A UUIDv7 this high is made in the year 10889.
"""

CANARY_CUSTOMERS: Final = [
    Id(CANARIES_FROM[:-1] + bytes([0xF0 + shard])) for shard in range(SHARDS)
]
"""The customer of the canaries of each shard."""


def shard_of(customer_id: Id) -> int:
    """Return the shard of `customer_id`; the low bits of a UUIDv7 are random."""
    return customer_id[-1] % SHARDS  # As of the whole number: 256 is a multiple of SHARDS.


def address(
    body: Mapping[str, Any],
    owner: Owner,
    *,
    lane: Lane,
    reply_to: str | None,
    at: datetime,
) -> Message:
    """Return `body`, a parsed message, as an inbox row in the queue of `owner`."""
    return Message(
        lane=lane,
        shard=shard_of(owner.customer_id),
        id=new_id(),
        customer_id=owner.customer_id,
        platform_id=owner.platform_id,
        source=body["source"],
        reference=body["reference"],
        body=body,
        body_hash=fingerprint(body),
        reply_to=reply_to,
        received_at=at,
    )


TRACEPARENT: Final = "traceparent"
"""Field of a message that belongs to a trace, which its writer adds; no event has it."""

_DELIVERY_FIELDS: Final = frozenset({"decideBy", "asOf", TRACEPARENT})
"""Fields that say how a submission is to be processed, not what happened at the network."""


def fingerprint(body: Mapping[str, Any]) -> bytes:
    """Return a 16-byte hash of the event in `body`, whatever the order of its keys.

    A repetition has a deadline of its own and is the same event all the same.
    """
    event = {key: value for key, value in body.items() if key not in _DELIVERY_FIELDS}
    return _hash(event)


def event_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `body` as it was submitted, without what its writer has added, to be kept."""
    if not isinstance(body, dict) or TRACEPARENT not in body:
        return body
    return {key: value for key, value in body.items() if key != TRACEPARENT}


def repeats(message: Message, body_hash: bytes) -> bool:
    """Return whether `message` is the event that was recorded with `body_hash`."""
    if message.body_hash == body_hash:
        return True
    if not isinstance(message.body, dict) or _DELIVERY_FIELDS.isdisjoint(message.body):
        return False
    # Earlier releases hashed the deadline as well, and outcomes are permanent.
    return _hash(message.body) == body_hash


def _hash(body: Mapping[str, Any]) -> bytes:
    return blake2b(to_json(_sorted(body)), digest_size=16).digest()


def _sorted(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return `value` with the keys of every object sorted."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


_ROUTES: Final = "SELECT id, customer_id, platform_id, currency FROM cards WHERE id = ANY(%s)"


async def routes_of(
    connection: AsyncConnection[Any], card_ids: Iterable[Id]
) -> dict[Id, CardRoute]:
    """Return the routes of the cards that exist."""
    cursor = await connection.execute(_ROUTES, [list(set(card_ids))])
    return {
        card: CardRoute(Owner(customer, platform), currency)
        async for card, customer, platform, currency in cursor
    }


def owners_of_cards(connection: Connection[Any], card_ids: Iterable[Id]) -> dict[Id, Owner]:
    """Return the owners of the cards that exist, for a thread."""
    cursor = connection.execute(_ROUTES, [list(set(card_ids))])
    return {card: Owner(customer, platform) for card, customer, platform, _ in cursor}


async def owner_of_account(connection: AsyncConnection[Any], account_id: Id) -> Owner | None:
    """Return the owner of the internal account `account_id`, None when unknown."""
    cursor = await connection.execute(
        "SELECT customer_id, platform_id FROM internal_accounts WHERE id = %s", [account_id]
    )
    row = await cursor.fetchone()
    return None if row is None else Owner(*row)


_INBOX: Final = BulkInsert(tables.inbox)


async def accept_async(
    connection: AsyncConnection[Any], messages: Sequence[Message], key: InboxKey
) -> None:
    """Write `messages` to the inbox with their MACs by `key`.

    They are accepted once the caller has committed.
    """
    await _INBOX.write_async(connection, [row_of(message, key) for message in messages])


def accept(connection: Connection[Any], messages: Sequence[Message], key: InboxKey) -> None:
    """Do as `accept_async` does, for a thread."""
    _INBOX.write(connection, [row_of(message, key) for message in messages])


# What waits is looked up first: where a batch has just deleted the message and has not committed,
# ON CONFLICT would wait for that commit.
_ACCEPT_ONCE: Final = """
    INSERT INTO inbox (lane, shard, id, customer_id, platform_id, source, reference, body,
        body_hash, reply_to, received_at, mac)
    SELECT k.lane, k.shard, k.id, k.customer_id, k.platform_id, k.source, k.reference,
        k.body::json, decode(k.body_hash, 'hex'), k.reply_to, k.received_at, decode(k.mac, 'hex')
    FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
        AS k (lane, shard, id, customer_id, platform_id, source, reference, body, body_hash,
            reply_to, received_at, mac)
    WHERE NOT EXISTS (
            SELECT FROM inbox i WHERE i.lane = k.lane AND i.shard = k.shard AND i.id = k.id)
        AND NOT EXISTS (
            SELECT FROM rejections r WHERE r.id = k.id AND r.customer_id = k.customer_id)
    ON CONFLICT DO NOTHING
"""
_ACCEPTED_TYPES: Final = (
    "int4", "int4", "uuid", "uuid", "uuid", "text", "text", "text", "text", "text", "timestamptz",
    "text"
)  # fmt: skip


BY_KEY: Final = """
    SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
        set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true)
"""
"""Before `accept_once`: the inbox is mostly empty, and a plan that reads all of it would be
kept while it grows."""


def accept_once(connection: Connection[Any], messages: Sequence[Message], key: InboxKey) -> int:
    """Write those of `messages`, whose ids are derived, that neither wait nor were rejected.

    Returns how many were written.
    """
    if not messages:
        return 0
    rows = [
        (*first, body_hash.hex(), reply_to, received_at, mac.hex())
        for *first, body_hash, reply_to, received_at, mac in (
            row_of(message, key) for message in messages
        )
    ]
    columns = pg_arrays.columns(rows, *_ACCEPTED_TYPES)
    return connection.execute(_ACCEPT_ONCE, columns).rowcount


def row_of(message: Message, key: InboxKey) -> tuple[Any, ...]:
    """Return `message` as the columns of `inbox`, the last of which is its MAC by `key`."""
    columns = (
        int(message.lane),
        message.shard,
        message.id,
        message.customer_id,
        message.platform_id,
        message.source,
        message.reference,
        to_json(message.body).decode(),  # JSON travels as text.
        message.body_hash,
        message.reply_to,
        message.received_at,
    )
    return (*columns, key.mac(columns))
