"""Submit network events and wait for their outcomes: what the API tier uses.

Submissions that arrive while one is being written share the next write. An outcome comes back
over Redis; without a reply, it is looked up in PostgreSQL.
"""

import asyncio
import contextvars
from asyncio import CancelledError, Future
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from itertools import takewhile
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, Self
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from cardledger.ledger.messaging.inbox import DEPOSIT, CardRoute, Lane, Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage.engines import async_engine, prepared
from cardledger.ledger.storage.secrets.key_ring import ServerKey
from cardledger.schema import location
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import NetworkEvent
from cardledger.schema.wire.outcomes import Outcome
from cardledger.workers.client import parsing, replies
from cardledger.workers.client.admission import Admission
from cardledger.workers.client.background import BackgroundTasks
from cardledger.workers.client.card_routes import CardRoutes
from cardledger.workers.client.database_clock import DatabaseClock
from cardledger.workers.client.deadlines import Deadlines, late_approvals, undecided
from cardledger.workers.client.errors import STOPPED, ReplyTimeoutError, UnavailableError
from cardledger.workers.client.inbox_writer import InboxWriter
from cardledger.workers.client.outcome_lookup import OutcomeLookup
from cardledger.workers.client.parsing import Event, MalformedSubmission, Submission
from cardledger.workers.client.pending import PendingOutcomes, abandon
from cardledger.workers.client.redis_gateway import RedisGateway
from cardledger.workers.client.replies import ForgedReplyError
from cardledger.workers.client.timeout_reversals import TimeoutReversals
from cardledger.workers.signals.doorbell import Doorbell, drain
from cardledger.workers.signals.message_key import MessageKey
from cardledger.workers.signals.repeated_warning import RepeatedWarning
from cardledger.workers.signals.stop_deadline import StopDeadline
from cardledger.workers.tracing import spans

_GATHER_S: Final = 0.005
_STOP_S: Final = 5.0  # Of a client: for so long it writes reversals while PostgreSQL fails over.
_TURN_S: Final = 0.000_5  # Of the event loop, for which events are parsed without a pause.
_GROUP: Final = 50  # Outcomes that are reported together.
_NOT_DECIDED: Final = "not decided yet; ask for its outcome later, by source and reference"

_FORGED: Final = RepeatedWarning(
    "replies without this installation's signature dropped; outcomes are looked up in PostgreSQL."
    " Check CARDLEDGER_SECRET_KEY of all processes, and who writes to Redis"
)


class Client:
    """Submits events to the workers; one per event loop. Use it as an async context manager."""

    def __init__(  # noqa: PLR0913 - each by name
        self,
        engine: AsyncEngine,
        redis_url: str,
        *,
        secret_key: str | ServerKey,
        reply_timeout_s: float = 10.0,
        gather_s: float = _GATHER_S,
        database_schema: str = location.DEFAULT,
    ) -> None:
        """Write to the inbox through `engine`; send doorbells and get replies over `redis_url`.

        `engine` may be any of psycopg: the client connects as it does, with connections of its own,
        and its tables are in `database_schema`.
        `secret_key` is the server key: with it, what is written is signed, and replies are
        verified. What a client with another key writes is not decided.
        While outcomes are pending, a write waits up to `gather_s` for more events.
        Raises: ValueError, TypeError for an engine of another driver, or not for event loops.
        """
        prepared_engine = prepared(engine, schema=database_schema)
        self._own_engine: Final = None if prepared_engine is engine else prepared_engine
        engine = prepared_engine
        self._reply_timeout_s: Final = reply_timeout_s
        self.inbox_key: Final = InboxKey(secret_key)
        self._key: Final = MessageKey(secret_key)
        self._redis: Final = RedisGateway(redis_url)
        self._pending: Final = PendingOutcomes()
        self._routes: Final = CardRoutes(engine)
        self._clock: Final = DatabaseClock(engine)
        self._admission: Final = Admission(now=self._clock.now)
        self._writers: Final = {
            lane: InboxWriter(
                engine,
                self._redis,
                self._pending,
                self._routes,
                self.inbox_key,
                lane=lane,
                now=self._clock.now,
                gather_s=gather_s,
            )
            for lane in Lane
        }
        self._lookup: Final = OutcomeLookup(engine, self._redis, self._pending, self.inbox_key)
        self._reversals: Final = TimeoutReversals(
            engine, self._redis, self.inbox_key, now=self._clock.now
        )
        self._deadlines: Final = Deadlines(self._clock, self._reversals)
        self._tasks: Final = BackgroundTasks()
        self._reversing: Final = BackgroundTasks()  # Goes on while deadlines are settled.
        self._is_stopped = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start writing and listening."""
        await self._clock.read()
        self._tasks.start(self._clock.read_again)
        self._reversing.start(self._reversals.write_next)
        self._tasks.start(self._listen, cancel_repeatedly=True)
        self._tasks.start(self._redis.send_next, cancel_repeatedly=True)
        for writer in self._writers.values():
            self._tasks.start(writer.write_next)
        self._tasks.start(self._lookup.poll)

    async def stop(self) -> None:
        """Stop; events that were accepted stay accepted.

        Callers that still wait, or come later, get an UnavailableError; futures that `enqueue`
        has returned are cancelled. Takes some seconds at most, also while PostgreSQL is away.
        """
        self._is_stopped = True
        deadline = StopDeadline(_STOP_S)
        for writer in self._writers.values():
            writer.close()
        try:
            await self._tasks.stop()
        finally:
            for writer in self._writers.values():
                writer.abandon()
            self._pending.abandon()
            # In this order: what a deadline settles has a reversal.
            await self._deadlines.stop()
            await self._reversing.stop()
            await self._reversals.close(deadline.left_s)
            await self._redis.close()
            if self._own_engine is not None:
                await self._own_engine.dispose()

    async def submit(
        self,
        events: Iterable[NetworkEvent | Mapping[str, Any]],
        *,
        platform_id: Id | UUID | None = None,
        lane: Lane = Lane.LIVE,
    ) -> list[Outcome]:
        """Enqueue `events` durably and wait for their outcomes.

        Shape: one outcome an event, in their order. Events of one lane are decided in the order
        in which they were accepted, those of one call in theirs.
        No approval is returned after the `decideBy` of its authorization, by PostgreSQL's clock:
        then the outcome is DECLINED with the reason DECISION_TIMEOUT, and an approval that was
        recorded all the same is reversed.
        `platform_id` limits them to the cards of one platform; None is for the operator.
        Raises: UnavailableError, ReplyTimeoutError; OverloadedError when they are authorizations
        that could not be decided before `decideBy`.
        """
        return await self.reported(self.put(events, platform_id, lane))

    async def submit_written(
        self, bodies: Iterable[Mapping[str, Any]], *, platform_id: Id
    ) -> list[Outcome]:
        """Do as `submit` does with bodies that `body_of` has written; they are not validated again.

        Raises: as `submit`.
        """
        create_future = asyncio.get_running_loop().create_future
        batch = [Submission(body, platform_id, Lane.LIVE, create_future()) for body in bodies]
        self._queue(batch, Lane.LIVE)
        return await self.reported(batch)

    async def enqueue(
        self,
        events: Iterable[Event],
        *,
        platform_id: Id | UUID | None = None,
        lane: Lane = Lane.BULK,
    ) -> "list[Future[Outcome]]":
        """Enqueue `events` durably and return at once; the futures bring their outcomes.

        Shape: one future an event, in their order; they have no time limit but `decideBy`, until
        which they may bring an approval. Events enqueued after this has returned are decided after
        these.
        `Numbered` is an event with its line in a file, and `Unreadable` stands for a line that
        holds no event: what is wrong is kept as a rejection.
        Raises: UnavailableError; the events may have been accepted.
        """
        batch = await self.accept(events, platform_id=platform_id, lane=lane)
        return [item.outcome for item in batch]

    async def accept(
        self, events: Iterable[Event], *, platform_id: Id | UUID | None, lane: Lane
    ) -> list[Submission | MalformedSubmission]:
        """Do as `enqueue` does, for `in_order`."""
        batch: list[Submission | MalformedSubmission] = []
        end = monotonic() + _TURN_S
        for event in events:
            batch.append(parsing.parse(event, _id(platform_id), lane))
            if monotonic() > end:
                await asyncio.sleep(0)  # Others have their turn.
                end = monotonic() + _TURN_S
        if not batch:
            return []
        self._queue(batch, lane)
        accepted = self._writers[lane].acceptance()  # Of the events above: nothing ran in between.
        try:
            with self._unavailable_once_stopped():
                await _accepted(accepted, batch)
        except BaseException:
            abandon([*(item.outcome for item in batch), accepted])
            raise
        return batch

    async def in_order(
        self, batch: Sequence[Submission | MalformedSubmission], *, patience_s: float
    ) -> AsyncIterator[list[Outcome]]:
        """Yield the outcomes of `batch`, which is accepted, in its order; as many as there are.

        After `patience_s` without one, events that are not decided are ACCEPTED, and nothing is
        waited for any more. Approvals meet their deadlines when they are yielded; groups are small,
        so that this is shortly before they are sent.
        """
        place = 0
        while place < len(batch):
            group = batch[place : place + _GROUP]
            decided = next(
                (n for n, item in enumerate(group) if not item.outcome.done()), len(group)
            )
            if decided:
                yield await self._deadlines.reported_each(group[:decided])
                place += decided
            elif not patience_s:
                yield [undecided(item, _NOT_DECIDED) for item in _undecided_first(group)]
                place += len(_undecided_first(group))
            elif not (await asyncio.wait([group[0].outcome], timeout=patience_s))[0]:
                patience_s = 0.0
            await asyncio.sleep(0)  # A group may be sent without a pause.

    async def deposit(  # noqa: PLR0913 - the fields of a deposit
        self,
        *,
        platform_id: Id,
        account_id: Id,
        amount: int,
        source: str,
        reference: str,
        details: Mapping[str, str] = MappingProxyType({}),
    ) -> Outcome:
        """Credit `amount` minor units to an internal account; otherwise as `submit`.

        `details`: `occurredAt`, when the money arrived, and `externalReference`, if known.
        """
        body = {
            **details,
            "type": DEPOSIT,
            "source": source,
            "reference": reference,
            "accountId": str(account_id),
            "amount": amount,
        }
        [outcome] = await self.submit_written([body], platform_id=platform_id)
        return outcome

    async def card(self, card_id: Id, *, platform_id: Id) -> CardRoute | None:
        """Return the owner and currency of the platform's card, mostly from memory, or None."""
        return await self._routes.get(card_id, platform_id=platform_id)

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
        self._pending.accepted([message])
        self._redis.notify([drain(message.lane, message.shard)])
        [outcome] = await self._outcomes([future])
        return outcome

    async def notify(self, *doorbells: Doorbell) -> None:
        """Have `doorbells` sent soon; without Redis, sweepers find the work a little later."""
        self._redis.notify(doorbells)

    async def is_redis_available(self) -> bool:
        """Return whether Redis responds; without it outcomes arrive too, a little later."""
        return await self._redis.ping()

    def now(self) -> datetime:
        """Return the time by PostgreSQL's clock, from which a `decideBy` should be counted."""
        return self._clock.now()

    def put(
        self, events: Iterable[Event], platform_id: Id | UUID | None, lane: Lane
    ) -> list[Submission | MalformedSubmission]:
        """Queue `events` for the next write: all of them, or, on an error here, none.

        For `submit`, which is this and `reported`. Raises: UnavailableError.
        """
        of_platform, sent = _id(platform_id), list(events)
        if lane is Lane.LIVE:
            self._admission.refuse_unread(sent)
        batch = [parsing.parse(event, of_platform, lane) for event in sent]
        self._queue(batch, lane)
        return batch

    async def reported(self, batch: Sequence[Submission | MalformedSubmission]) -> list[Outcome]:
        """Return the outcomes of `batch` as they may be reported when this returns.

        Raises: UnavailableError, ReplyTimeoutError.
        """
        outcomes = await self._outcomes([item.outcome for item in batch])
        return await self._deadlines.reported(batch, outcomes)

    def _queue(self, batch: Sequence[Submission | MalformedSubmission], lane: Lane) -> None:
        if lane is Lane.LIVE:
            self._admission.admit(batch)
        if span := spans.inbox(len(batch)):
            for item in batch:
                if isinstance(item, Submission):
                    item.span = span
        self._writers[lane].put(batch)
        for item in batch:
            if isinstance(item, Submission):
                self._deadlines.watch(item)

    async def _listen(self) -> None:
        """Wait for one reply over Redis, and resolve the outcomes in it."""
        reply = await self._redis.next_reply()
        if reply is None:
            return
        try:
            outcomes = list(replies.read(reply, self._redis.reply_list, self._key))
        except ForgedReplyError:
            _FORGED.note()
            await self._redis.clear_replies()
            return
        if self._pending.resolve(outcomes):  # A reply that is repeated shows nothing.
            self._pending.note_reply()

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


def _id(platform_id: Id | UUID | None) -> Id | None:
    return Id(platform_id.bytes) if isinstance(platform_id, UUID) else platform_id


async def _accepted(
    accepted: "Future[None]", batch: Sequence[Submission | MalformedSubmission]
) -> None:
    """Return once `batch` is committed, or each of its authorizations is settled without it.

    Raises: UnavailableError when an event of it is not recorded.
    """
    while not accepted.done():
        open_outcomes = [item.outcome for item in batch if not item.outcome.done()]
        if not open_outcomes:
            # Timeout reversals are durable: they decline what the write would have added.
            accepted.add_done_callback(lambda late: late.cancelled() or late.exception())
            break
        waits: list[Future[Any]] = [accepted, *open_outcomes]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if accepted.done():
        accepted.result()
    for item in batch:
        is_unwritten = isinstance(item, Submission) and (item.is_withdrawn or not accepted.done())
        if is_unwritten and item.outcome.done():
            item.outcome.result()


def _undecided_first(
    group: Sequence[Submission | MalformedSubmission],
) -> Sequence[Submission | MalformedSubmission]:
    """Return the part of `group` before its first outcome."""
    return list(takewhile(lambda item: not item.outcome.done(), group))


def submit(  # noqa: PLR0913 - two URLs, and the parameters of Client.submit
    events: Iterable[NetworkEvent | Mapping[str, Any]],
    *,
    database_url: str,
    redis_url: str,
    secret_key: str | ServerKey,
    platform_id: Id | UUID | None = None,
    lane: Lane = Lane.BULK,
    reply_timeout_s: float = 60.0,
) -> list[Outcome]:
    """Do as `Client.submit` does, for a program without an event loop, or outside of its loop.

    Where a loop runs already, it waits for the outcomes like for any function: use `Client` there
    instead. `secret_key` is the server key.
    """

    async def run() -> list[Outcome]:
        engine = async_engine(database_url, keyed=True)

        def client_of() -> Client:
            return Client(engine, redis_url, secret_key=secret_key, reply_timeout_s=reply_timeout_s)

        try:
            async with client_of() as client:
                batch = client.put(events, platform_id, lane)
                outcomes = await client.reported(batch)
            while late_approvals(batch, outcomes):  # The client takes a moment to stop.
                async with client_of() as client:
                    outcomes = await client.reported(batch)
            return outcomes
        finally:
            await engine.dispose()

    if not _is_in_a_loop():
        return asyncio.run(run())
    # A thread has one loop at a time.
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="submit") as thread:
        return thread.submit(contextvars.copy_context().run, asyncio.run, run()).result()


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
