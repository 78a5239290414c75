"""Submit network events and wait for their outcomes: what the API tier uses.

Submissions that arrive while one is being written share the next write. An outcome comes back
over Redis; without a reply, it is looked up in PostgreSQL.
"""

import asyncio
from asyncio import CancelledError, Future
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from cardledger.ledger.messaging.inbox import DEPOSIT, CardRoute, Lane, Message
from cardledger.ledger.storage.engines import async_engine
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import NetworkEvent
from cardledger.schema.wire.outcomes import Outcome
from cardledger.workers.client import parsing
from cardledger.workers.client.background import BackgroundTasks
from cardledger.workers.client.card_routes import CardRoutes
from cardledger.workers.client.errors import STOPPED, ReplyTimeoutError, UnavailableError
from cardledger.workers.client.inbox_writer import InboxWriter
from cardledger.workers.client.outcome_lookup import OutcomeLookup
from cardledger.workers.client.parsing import Event, Submission
from cardledger.workers.client.pending import PendingOutcomes, abandon
from cardledger.workers.client.redis_gateway import RedisGateway
from cardledger.workers.client.reply_listener import ReplyListener
from cardledger.workers.signals.doorbell import Doorbell, drain

_GATHER_S: Final = 0.005


class Client:
    """Submits events to the workers; one per event loop. Use it as an async context manager."""

    def __init__(
        self,
        engine: AsyncEngine,
        redis_url: str,
        *,
        reply_timeout_s: float = 10.0,
        gather_s: float = _GATHER_S,
    ) -> None:
        """Write to the inbox through `engine`; send doorbells and get replies over `redis_url`.

        While outcomes are pending, a write waits up to `gather_s` for more events.
        """
        self._reply_timeout_s: Final = reply_timeout_s
        self._redis: Final = RedisGateway(redis_url)
        self._pending: Final = PendingOutcomes()
        self._routes: Final = CardRoutes(engine)
        self._writer: Final = InboxWriter(
            engine, self._redis, self._pending, self._routes, gather_s=gather_s
        )
        self._listener: Final = ReplyListener(self._redis, self._pending)
        self._lookup: Final = OutcomeLookup(engine, self._redis, self._pending)
        self._tasks: Final = BackgroundTasks()
        self._is_stopped = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start writing and listening."""
        self._tasks.start(self._listener.listen, cancel_repeatedly=True)
        self._tasks.start(self._writer.write_next)
        self._tasks.start(self._lookup.poll)

    async def stop(self) -> None:
        """Stop; events that were accepted stay accepted.

        Callers that still wait, or come later, get an UnavailableError; futures that `enqueue`
        has returned are cancelled.
        """
        self._is_stopped = True
        self._writer.close()
        try:
            await self._tasks.stop()
        finally:
            self._writer.abandon()
            self._pending.abandon()
            await self._redis.close()

    async def submit(
        self,
        events: Iterable[NetworkEvent | Mapping[str, Any]],
        *,
        platform_id: Id | UUID | None = None,
        lane: Lane = Lane.LIVE,
    ) -> list[Outcome]:
        """Enqueue `events` durably and wait for their outcomes.

        Shape: one outcome an event, in their order. Events of one lane are decided in the order
        in which they were submitted.
        `platform_id` limits them to the cards of one platform; None is for the operator.
        Raises: UnavailableError, ReplyTimeoutError.
        """
        return await self._outcomes(self._put(events, platform_id, lane))

    async def submit_written(
        self, bodies: Iterable[Mapping[str, Any]], *, platform_id: Id
    ) -> list[Outcome]:
        """Do as `submit` does with bodies that `body_of` has written; they are not validated again.

        Raises: as `submit`.
        """
        create_future = asyncio.get_running_loop().create_future
        batch = [Submission(body, platform_id, Lane.LIVE, create_future()) for body in bodies]
        self._writer.put(batch)
        return await self._outcomes([item.outcome for item in batch])

    async def enqueue(
        self,
        events: Iterable[Event],
        *,
        platform_id: Id | UUID | None = None,
        lane: Lane = Lane.BULK,
    ) -> "list[Future[Outcome]]":
        """Enqueue `events` durably and return at once; the futures bring their outcomes.

        Shape: one future an event, in their order; they have no time limit. Events enqueued after
        this has returned are decided after these.
        `Unreadable` stands for a line that holds no event: it is kept as a rejection.
        Raises: UnavailableError; the events may have been accepted.
        """
        futures = self._put(events, platform_id, lane)
        if not futures:
            return []
        accepted = self._writer.acceptance()  # Of the events above: nothing ran in between.
        try:
            with self._unavailable_once_stopped():
                await accepted
        except BaseException:
            abandon(futures)
            raise
        return futures

    async def deposit(
        self, *, platform_id: Id, account_id: Id, amount: int, source: str, reference: str
    ) -> Outcome:
        """Credit `amount` minor units to an internal account; otherwise as `submit`."""
        body = {
            "type": DEPOSIT,
            "source": source,
            "reference": reference,
            "accountId": str(account_id),
            "amount": amount,
        }
        [outcome] = await self.submit_written([body], platform_id=platform_id)
        return outcome

    async def card(self, card_id: Id) -> CardRoute | None:
        """Return the owner and shard of a card, mostly from memory; None if it does not exist."""
        return await self._routes.get(card_id)

    @property
    def reply_list(self) -> str:
        """The `reply_to` of a message whose outcome this client waits for."""
        return self._redis.reply_list

    async def outcome_of(self, message: Message) -> Outcome:
        """Notify the workers of `message`, which the caller has committed; return its outcome.

        For facts that enter the inbox in one commit with others. Call it after that commit.
        Raises: ReplyTimeoutError; the message is durable all the same.
        """
        future: Future[Outcome] = asyncio.get_running_loop().create_future()
        self._pending.add(message, future)
        await self.notify(drain(message.lane, message.shard))
        [outcome] = await self._outcomes([future])
        return outcome

    async def notify(self, *doorbells: Doorbell) -> None:
        """Send `doorbells`; without Redis, sweepers find the work a little later."""
        await self._redis.notify(doorbells)

    async def is_redis_available(self) -> bool:
        """Return whether Redis responds; without it outcomes arrive too, a little later."""
        return await self._redis.ping()

    def _put(
        self, events: Iterable[Event], platform_id: Id | UUID | None, lane: Lane
    ) -> "list[Future[Outcome]]":
        """Queue `events` for the next write: all of them, or, on an error here, none."""
        if isinstance(platform_id, UUID):
            platform_id = Id(platform_id.bytes)
        batch = [parsing.parse(event, platform_id, lane) for event in events]
        self._writer.put(batch)
        return [item.outcome for item in batch]

    @contextmanager
    def _unavailable_once_stopped(self) -> Iterator[None]:
        """Raise UnavailableError when the awaited future was cancelled by `stop`.

        A cancellation of the caller's own task passes through.
        """
        try:
            yield
        except CancelledError:
            task = asyncio.current_task()
            if self._is_stopped and task is not None and not task.cancelling():
                raise UnavailableError(STOPPED) from None
            raise

    async def _outcomes(self, futures: Sequence["Future[Outcome]"]) -> list[Outcome]:
        try:
            async with asyncio.timeout(self._reply_timeout_s):
                with self._unavailable_once_stopped():
                    # One after the other: a write succeeds or fails for all of them.
                    return [await future for future in futures]
        except TimeoutError:
            message = f"no outcome within {self._reply_timeout_s} s"
            raise ReplyTimeoutError(message) from None
        finally:
            abandon(futures)


def submit(  # noqa: PLR0913 - two URLs, and the parameters of Client.submit
    events: Iterable[NetworkEvent | Mapping[str, Any]],
    *,
    database_url: str,
    redis_url: str,
    platform_id: Id | UUID | None = None,
    lane: Lane = Lane.BULK,
    reply_timeout_s: float = 60.0,
) -> list[Outcome]:
    """Do as `Client.submit` does, for a program without an event loop."""

    async def run() -> list[Outcome]:
        engine = async_engine(database_url, keyed=True)
        try:
            async with Client(engine, redis_url, reply_timeout_s=reply_timeout_s) as client:
                return await client.submit(events, platform_id=platform_id, lane=lane)
        finally:
            await engine.dispose()

    return asyncio.run(run())
