"""The load of the measurements: cardholders with money, and messages about their cards."""

import asyncio
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, TypeVar

import psycopg
from sqlalchemy import NullPool

from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import DEPOSIT, Lane, Message, Owner
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.ids import Id

SOURCE: Final = "bench"
MERCHANT: Final = {"descriptor": "CORNER BAKERY 0417", "mcc": "5812", "country": "US"}
_BALANCE: Final = 10**15  # Enough for any run, so that nothing is declined.
_CURRENCY: Final = "USD"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Cardholder:
    """A cardholder with one card on one account."""

    owner: Owner
    account_id: Id
    card_id: Id

    @property
    def shard(self) -> int:
        """The shard of the customer's queue."""
        return inbox.shard_of(self.owner.customer_id)


@dataclass(frozen=True, slots=True)
class CardTransactionKey:
    """What a clearing needs to refer to an authorization."""

    cardholder: Cardholder
    token: str
    amount: int


def new_platform(app_url: str, secret_key: str) -> Id:
    """Set up a platform; returns its id."""

    async def create() -> Id:
        engine = async_engine(app_url, poolclass=NullPool)
        async with engine.begin() as connection:
            platform = await platforms.create(
                connection, name="Bench", keys=KeyRing(secret_key), currencies=(_CURRENCY,)
            )
        await engine.dispose()
        return platform.id

    return asyncio.run(create())


def new_cardholders(owner_url: str, platform_id: Id, count: int) -> list[Cardholder]:
    """Set up `count` cardholders with an active card each, as evenly over the queues as it goes."""
    cardholders = [_cardholder(platform_id, number % inbox.SHARDS) for number in range(count)]
    now = datetime.now(UTC)
    with psycopg.connect(owner_url) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO customers (id, platform_id, platform_customer_id, customer_type,"
            " kyc_status, uma_address, currencies, created_at, updated_at)"
            " VALUES (%s, %s, %s, 'INDIVIDUAL', 'APPROVED', %s, %s, %s, %s)",
            [
                (
                    h.owner.customer_id, platform_id, str(h.owner.customer_id),
                    f"${h.owner.customer_id}@bench.test", [_CURRENCY], now, now,
                )
                for h in cardholders
            ],
        )  # fmt: skip
        cursor.executemany(
            "INSERT INTO internal_accounts (id, customer_id, platform_id, currency, type, status,"
            " created_at, updated_at) VALUES (%s, %s, %s, %s, 'INTERNAL_FIAT', 'ACTIVE', %s, %s)",
            [
                (h.account_id, h.owner.customer_id, platform_id, _CURRENCY, now, now)
                for h in cardholders
            ],
        )
        cursor.executemany(
            "INSERT INTO cards (id, customer_id, platform_id, platform_card_id, state, form,"
            " currency, funding_sources, processor_ref, issuer_ref, created_at, updated_at)"
            " VALUES (%s, %s, %s, %s, 'ACTIVE', 'VIRTUAL', %s, %s, 'p', 'i', %s, %s)",
            [
                (
                    h.card_id, h.owner.customer_id, platform_id, str(h.card_id), _CURRENCY,
                    [h.account_id], now, now,
                )
                for h in cardholders
            ],
        )  # fmt: skip
    return cardholders


def deposits(cardholders: Iterable[Cardholder]) -> list[Message]:
    """Return a deposit for each of `cardholders`."""
    return [
        _message(h, {"type": DEPOSIT, "accountId": str(h.account_id), "amount": _BALANCE})
        for h in cardholders
    ]


def purchases(
    cardholders: Sequence[Cardholder], count: int, *, seed: int, run: str = ""
) -> list[CardTransactionKey]:
    """Return `count` purchases to come, the cardholders in turn; other `run`, other purchases."""
    numbers = random.Random(seed)
    return [
        CardTransactionKey(
            cardholders[number % len(cardholders)],
            f"{run}-{seed}-{number}",
            numbers.randint(100, 20_000),
        )
        for number in range(count)
    ]


def authorizations(wanted: Iterable[CardTransactionKey]) -> list[Message]:
    """Return the authorizations of `wanted`."""
    return [_event("AUTHORIZATION", key, key.amount, {"merchant": MERCHANT}) for key in wanted]


def clearings(authorized: Sequence[CardTransactionKey]) -> list[Message]:
    """Return the final clearings of `authorized`: every second with a tip of a fifth."""
    return [
        _event("CLEARING", key, key.amount * (6 if number % 2 else 5) // 5, {"final": True})
        for number, key in enumerate(authorized)
    ]


def overdrafts(authorized: Sequence[CardTransactionKey]) -> list[Message]:
    """Return final clearings of `authorized`, each of more than its account has: exceptions."""
    return [_event("CLEARING", key, 2 * _BALANCE, {"final": True}) for key in authorized]


def in_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield `items` in lists of at most `size`."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def _cardholder(platform_id: Id, shard: int) -> Cardholder:
    customer_id = new_id()
    while inbox.shard_of(customer_id) != shard:
        customer_id = new_id()
    return Cardholder(Owner(customer_id, platform_id), new_id(), new_id())


def _event(kind: str, key: CardTransactionKey, amount: int, fields: dict[str, Any]) -> Message:
    body = {
        "type": kind,
        "issuerTransactionToken": key.token,
        "cardId": f"Card:{key.cardholder.card_id}",
        "amount": amount,
        "currency": _CURRENCY,
        **fields,
    }
    return _message(key.cardholder, body)


def _message(cardholder: Cardholder, body: dict[str, Any]) -> Message:
    return inbox.address(
        {"source": SOURCE, "reference": str(new_id()), **body},
        cardholder.owner,
        lane=Lane.LIVE,
        reply_to=None,
        at=datetime.now(UTC),
    )
