"""The way in: network events are durable here before anybody is told that they are accepted.

A message waits in `inbox` until a batch decides it; the same commit deletes it and leaves its
outcome in `outcomes`, keyed for ever by who sent it and its reference there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Final

from psycopg import AsyncConnection, Connection
from pydantic_core import to_json

from cardledger.ledger.storage.bulk_writes import Copy
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id

SHARDS: Final = 16
"""Queues per lane. A cardholder has one, so nothing that shares an account is decided in two."""

DEPOSIT: Final = "DEPOSIT"
"""Type of the message that brings money to an internal account; no network sends it."""

TRANSFER: Final = "TRANSFER"
"""Type of the message that carries out a transfer; whoever lets one happen sends it."""

CARD_CLOSED: Final = "CARD_CLOSED"
"""Type of the message that gives back what is held on a card; closing the card sends it."""

RECOVERY: Final = "RECOVERY"
"""Type of the message that goes on paying a long queue of debts; the engine sends it to itself."""

PULL_CONFIRMATION: Final = "PULL_CONFIRMATION"
"""Type of the message that says what became of a pending pull; the schedule sends it."""


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
    """Where a message belongs: the cardholder whose money it moves, and their platform."""

    customer_id: Id
    platform_id: Id


@dataclass(frozen=True, slots=True)
class CardRoute:
    """Where the messages of a card belong, and in which currency they are: for ever."""

    owner: Owner
    currency: str


UNROUTED: Final = Owner(customer_id=Id(bytes(16)), platform_id=Id(bytes(16)))


def shard_of(customer_id: Id) -> int:
    """Return the shard of `customer_id`: the low bits of a UUIDv7 are random."""
    return customer_id[-1] % SHARDS  # As the whole number would be: 256 is a multiple.


def address(
    body: Mapping[str, Any],
    owner: Owner,
    *,
    lane: Lane,
    reply_to: str | None,
    at: datetime,
) -> Message:
    """Return `body`, a parsed message, as a row for the queue of `owner`."""
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


def fingerprint(body: Mapping[str, Any]) -> bytes:
    """Return 16 bytes that tell a repetition of `body` from another body."""
    return blake2b(to_json(_sorted(body)), digest_size=16).digest()


def _sorted(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return `value` with the keys of every object in their order."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


async def routes_of(
    connection: AsyncConnection[Any], card_ids: Iterable[Id]
) -> dict[Id, CardRoute]:
    """Return what never changes about every card that exists."""
    cursor = await connection.execute(
        "SELECT id, customer_id, platform_id, currency FROM cards WHERE id = ANY(%s)",
        [list(set(card_ids))],
    )
    return {
        card: CardRoute(Owner(customer, platform), currency)
        async for card, customer, platform, currency in cursor
    }


async def owner_of_account(connection: AsyncConnection[Any], account_id: Id) -> Owner | None:
    """Return the owner of the internal account `account_id`, or None when there is no such."""
    cursor = await connection.execute(
        "SELECT customer_id, platform_id FROM internal_accounts WHERE id = %s", [account_id]
    )
    row = await cursor.fetchone()
    return None if row is None else Owner(*row)


_INBOX: Final = Copy(tables.inbox)


async def accept_async(connection: AsyncConnection[Any], messages: Sequence[Message]) -> None:
    """Write `messages` to the inbox; they are accepted once the caller has committed."""
    await _INBOX.write_async(connection, map(_row, messages))


def accept(connection: Connection[Any], messages: Sequence[Message]) -> None:
    """Do as `accept_async` does, for a thread."""
    _INBOX.write(connection, list(map(_row, messages)))


def _row(message: Message) -> tuple[Any, ...]:
    return (
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
