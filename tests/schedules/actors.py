"""The work of our processes, as functions for actors."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Engine as Database
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cardledger.ledger.cards import lifecycle
from cardledger.ledger.cards.lifecycle import CardChange
from cardledger.ledger.engine import outcomes, timers
from cardledger.ledger.engine.commit import Engine
from cardledger.ledger.engine.failures import UnavailableError
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging import inbox, timeout_reversals
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.messaging.timeout_reversals import TIMEOUT_REVERSAL
from cardledger.ledger.storage.engines import driver, driver_async
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.wire.outcomes import Outcome
from tests.schedules.driver import stepped_async_database
from tests.world import INBOX_KEY, Cardholder, World

Act = Callable[[], None]


def accept(
    world: World, cardholder: Cardholder, bodies: Sequence[dict[str, Any]], lane: Lane = Lane.LIVE
) -> list[Message]:
    """Let messages of `cardholder` wait to be decided."""
    messages = addressed(cardholder, bodies, lane)
    inbox.accept(world.connection, messages, INBOX_KEY)
    return messages


def addressed(
    cardholder: Cardholder, bodies: Sequence[dict[str, Any]], lane: Lane = Lane.LIVE
) -> list[Message]:
    """Return messages of `cardholder` that are not accepted yet."""
    return [_addressed(cardholder, body, lane) for body in bodies]


def _addressed(cardholder: Cardholder, body: dict[str, Any], lane: Lane) -> Message:
    now = datetime.now(UTC)
    if body.get("type") == TIMEOUT_REVERSAL:
        # Its key and hash are those of what it settles.
        authorization = _addressed(cardholder, body["authorization"], lane)
        return timeout_reversals.reversal_of(authorization, at=now)
    return inbox.address(body, cardholder.owner, lane=lane, reply_to=None, at=now)


@dataclass
class Draining:
    """A worker drains the queue of `cardholder`, once more when PostgreSQL was unavailable."""

    engine: Engine
    cardholder: Cardholder
    lane: Lane = Lane.LIVE
    decided: list[Decided] = field(default_factory=list, init=False)

    def __call__(self) -> None:
        for _ in range(2):
            try:
                self.engine.drain(self.lane, [self.cardholder.shard], self.decided.extend)
            except UnavailableError:
                continue
            return


def accepting(database: Database, messages: Sequence[Message]) -> Act:
    """A client writes `messages` to the inbox."""

    def accept() -> None:
        with database.begin() as connection:
            inbox.accept(driver(connection), messages, INBOX_KEY)

    return accept


def sweeping(database: Database, now: datetime) -> Act:
    """A sweeper enqueues what is due at `now`."""

    def sweep() -> None:
        with database.begin() as connection:
            timers.Timers(INBOX_KEY).enqueue_due(driver(connection), now)

    return sweep


def changing(world: World, cardholder: Cardholder, change: CardChange) -> Act:
    """A request changes the card of `cardholder`."""
    return _request(world, lambda connection: _apply(connection, cardholder, change))


_OPEN: Final = """
    INSERT INTO internal_accounts
        (id, customer_id, platform_id, currency, type, status, created_at, updated_at)
    VALUES (%s, %s, %s, 'USD', 'INTERNAL_FIAT', 'ACTIVE', now(), now())
"""


def moving_to_a_new_account(world: World, cardholder: Cardholder) -> Act:
    """A request opens an account; another makes it the funding source of the card."""
    account_id = new_id()

    async def open_account(connection: AsyncConnection) -> None:
        owner = cardholder.owner
        raw = await driver_async(connection)
        await raw.execute(_OPEN, [account_id, owner.customer_id, owner.platform_id])

    steps = (
        _request(world, open_account),
        changing(world, cardholder, CardChange(funding_sources=[account_id])),
    )

    def move() -> None:
        for step in steps:
            step()

    return move


def _request(world: World, work: Callable[[AsyncConnection], Awaitable[None]]) -> Act:
    database = stepped_async_database(world.app_url)

    async def serve() -> None:
        async with database.begin() as connection:
            await work(connection)

    return lambda: asyncio.run(serve())


async def _apply(connection: AsyncConnection, cardholder: Cardholder, change: CardChange) -> None:
    await lifecycle.apply(
        connection,
        platform_id=cardholder.owner.platform_id,
        card_id=cardholder.card_id,
        change=change,
        issuer=None,
        reply_to=None,
        inbox_key=INBOX_KEY,
        at=datetime.now(UTC),
    )


@dataclass
class LookingUp:
    """A client without replies asks the record for the outcome of `message`, a few times."""

    world: World
    message: Message
    answer: Outcome | None = field(default=None, init=False)
    database: AsyncEngine = field(init=False)

    def __post_init__(self) -> None:
        self.database = stepped_async_database(self.world.app_url)

    def __call__(self) -> None:
        asyncio.run(self._look_up())

    async def _look_up(self) -> None:
        async with self.database.connect() as connection:
            raw = await driver_async(connection)
            for _ in range(3):
                found = await outcomes.find(raw, [self.message], INBOX_KEY)
                await connection.rollback()
                self.answer = found.get(self.message.id)
                if self.answer:
                    return
