"""Submit and wait: how the API tier hands over network events and gets their outcomes.

Every submission that comes in while one is being written goes into the next one, and a single one
waits a moment for company while others are being decided: so load makes the writes larger, not
more. An outcome comes back over Redis; when none does, it is looked up in the record.
"""

import asyncio
from asyncio import CancelledError, Future, Task
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from json import dumps
from time import monotonic
from typing import Any, Final, Self
from uuid import UUID

import redis.asyncio as redis
import structlog
from psycopg import AsyncConnection, OperationalError
from pydantic import BaseModel, ValidationError
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine

from cardledger.ledger.engine import outcomes as answers
from cardledger.ledger.engine import rejections
from cardledger.ledger.engine.parsing import card_id_of
from cardledger.ledger.engine.records import RejectionRecord
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import (
    DEPOSIT,
    UNROUTED,
    CardRoute,
    Lane,
    Message,
    Owner,
    address,
)
from cardledger.ledger.storage.engines import async_engine, driver_async
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire import outcomes
from cardledger.schema.wire.errors import explain
from cardledger.schema.wire.network_events import NETWORK_EVENT, NetworkEvent, body_of
from cardledger.schema.wire.outcomes import Outcome, OutcomeType, RejectionReason
from cardledger.workers.client import replies
from cardledger.workers.signals.doorbell import Doorbell, drain, drain_all, notify

_AWAY: Final = (OperationalError, DBAPIError, PoolTimeoutError, OSError)
_GATHER_S: Final = 0.005
_END_S: Final = 2.0  # How long a statement may take to end when the client stops.
_LISTENING: Final = 0  # Which of its tasks listens.
_LOOK_UP_EVERY_S: Final = 0.1
_PATIENCE_S: Final = 1.0  # How long a reply may take before the record is asked.
_LONG_PATIENCE_S: Final = 5.0  # The same while replies to others come in.
_MANY_LATE: Final = 1000  # Messages asked about at once.
_MANY_CARDS: Final = 200_000  # Homes remembered, at about 200 bytes each.
_REDIS_PAUSE_S: Final = 0.5  # How long Redis is left alone after it failed.

_log = structlog.get_logger()


class UnavailableError(Exception):
    """PostgreSQL is away, or the client has stopped; whether the events were accepted is not known.

    Send them again.
    """


_STOPPED: Final = "the client has stopped; send the events again with the same references"


class ReplyTimeoutError(Exception):
    """No outcome came in time. The events are accepted and will be decided; ask again later."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What came in the place of an event and is not even a JSON object; `detail` says why."""

    text: str
    detail: str


@dataclass(frozen=True, slots=True)
class _Sent:
    """An event on its way in: what it says, who sends it, who waits for it."""

    body: Mapping[str, Any]
    platform_id: Id | None  # None: the operator, who may use every card.
    lane: Lane
    outcome: "Future[Outcome]"


@dataclass(frozen=True, slots=True)
class _Malformed:
    """Something on its way in that is no event: it is kept with its reason."""

    body: str
    reference: str | None
    source: str | None
    detail: str
    platform_id: Id | None
    outcome: "Future[Outcome]"


@dataclass(slots=True)
class _Waiting:
    """A message that is accepted, and the future of its outcome."""

    message: Message
    outcome: "Future[Outcome]"
    asked_at: float = field(default_factory=monotonic)  # When it was sent, then last looked up.


class Client:
    """Hands events to the workers; one per event loop. Use it as an async context manager."""

    def __init__(
        self,
        engine: AsyncEngine,
        redis_url: str,
        *,
        reply_timeout_s: float = 10.0,
        gather_s: float = _GATHER_S,
    ) -> None:
        """Write to the inbox through `engine`, ring and hear replies over `redis_url`.

        Who comes while others wait for their outcomes waits up to `gather_s` for company.
        """
        self._engine: Final = engine
        self._single: Final = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._reply_timeout_s: Final = reply_timeout_s
        self._gather_s: Final = gather_s
        self._reply_list: Final = f"cardledger:replies:{new_id()}"
        self._redis: Final = redis.Redis.from_url(
            redis_url,
            socket_timeout=2.0,  # Above the sleep of `_listen`.
            socket_connect_timeout=0.5,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis_away_until = 0.0
        self._heard_at = 0.0
        self._heard: Final = asyncio.Event()
        self._outgoing: list[_Sent | _Malformed] = []
        self._unaccepted: list[Future[None]] = []  # Who waits for the next write to be durable.
        self._has_outgoing: Final = asyncio.Event()
        self._waiting: Final[dict[Id, _Waiting]] = {}
        self._cards: Final[dict[Id, CardRoute]] = {}
        self._tasks: list[Task[None]] = []
        self._is_stopped = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start sending and listening."""
        loops = (self._listen, self._send, self._look_up)
        self._tasks = [asyncio.create_task(_for_ever(loop)) for loop in loops]

    async def stop(self) -> None:
        """Stop; events that were accepted stay accepted.

        Whoever still waits, or comes later, gets an UnavailableError; futures that `enqueue` has
        returned are cancelled.
        """
        self._is_stopped = True
        try:
            await self._end()
        finally:
            _abandon([item.outcome for item in self._outgoing])
            _abandon([waiting.outcome for waiting in self._waiting.values()])
            _abandon(self._unaccepted)
            await self._redis.aclose()

    async def _end(self) -> None:
        for task in self._tasks:
            if not task.cancelling():
                task.cancel()
        running = set(self._tasks)
        deadline = monotonic() + _END_S
        while running:
            _, running = await asyncio.wait(running, timeout=_LOOK_UP_EVERY_S)
            for task in running:
                # What holds a connection gives it back in order, which a second cancellation would
                # interrupt. What listens has none, and redis-py can forget a cancellation.
                if task is self._tasks[_LISTENING] or monotonic() > deadline:
                    task.cancel()

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
        """Do as `submit` does with events that are as `body_of` has written them.

        They are not looked at again. Raises: as `submit`.
        """
        create_future = asyncio.get_running_loop().create_future
        sent = [_Sent(body, platform_id, Lane.LIVE, create_future()) for body in bodies]
        for item in sent:
            self._enqueue(item)
        return await self._outcomes([item.outcome for item in sent])

    async def enqueue(
        self,
        events: Iterable[NetworkEvent | Mapping[str, Any] | Unreadable],
        *,
        platform_id: Id | UUID | None = None,
        lane: Lane = Lane.BULK,
    ) -> "list[Future[Outcome]]":
        """Enqueue `events` durably and return at once; the futures bring their outcomes.

        Shape: one future an event, in their order; they have no time limit. Whoever enqueues again
        only after this has returned has the events of both decided in that order.
        `Unreadable` stands for a line that holds no event: it is kept as a rejection.
        Raises: UnavailableError; then whether they were accepted is not known.
        """
        futures = self._put(events, platform_id, lane)
        if not futures:
            return []
        accepted: Future[None] = asyncio.get_running_loop().create_future()
        self._unaccepted.append(accepted)  # With the events above: nothing ran in between.
        try:
            with self._told_of_stop():
                await accepted
        except BaseException:
            _abandon(futures)
            raise
        return futures

    async def deposit(
        self, *, platform_id: Id, account_id: Id, amount: int, source: str, reference: str
    ) -> Outcome:
        """Bring `amount` minor units to an internal account; as `submit` in all else."""
        body = {
            "type": DEPOSIT,
            "source": source,
            "reference": reference,
            "accountId": str(account_id),
            "amount": amount,
        }
        sent = _Sent(body, platform_id, Lane.LIVE, asyncio.get_running_loop().create_future())
        self._enqueue(sent)
        [outcome] = await self._outcomes([sent.outcome])
        return outcome

    async def card(self, card_id: Id) -> CardRoute | None:
        """Return where a card belongs, mostly from memory; None when there is no such card."""
        if card_id not in self._cards:
            async with self._engine.connect() as outer:
                await self._learn(await driver_async(outer), [card_id])
        return self._cards.get(card_id)

    @property
    def reply_list(self) -> str:
        """Where replies to this client go: the `reply_to` of a message that it waits for."""
        return self._reply_list

    async def outcome_of(self, message: Message) -> Outcome:
        """Ring for `message`, which the caller has put into the inbox, and wait for its outcome.

        For facts that enter the inbox in one commit with others. Call it after that commit.
        Raises: ReplyTimeoutError; the message is durable all the same.
        """
        outcome: Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[message.id] = _Waiting(message, outcome)
        await self.ring(drain(message.lane, message.shard))
        [found] = await self._outcomes([outcome])
        return found

    async def ring(self, *doorbells: Doorbell) -> None:
        """Ring `doorbells`; when Redis is away, sweepers find the work a little later."""
        if not doorbells or monotonic() < self._redis_away_until:
            return
        pipeline = self._redis.pipeline(transaction=False)
        notify(pipeline, doorbells)
        try:
            await pipeline.execute()
        except (RedisError, OSError) as error:
            self._leave_redis_alone(error)

    async def hears(self) -> bool:
        """Return whether Redis answers; without it outcomes come too, a little later."""
        try:
            async with asyncio.timeout(1.0):
                await self._redis.ping()
        except (RedisError, OSError, TimeoutError):
            return False
        return True

    # --- in --------------------------------------------------------------------------------

    def _put(
        self,
        events: Iterable[NetworkEvent | Mapping[str, Any] | Unreadable],
        platform_id: Id | UUID | None,
        lane: Lane,
    ) -> "list[Future[Outcome]]":
        """Have `events` written with the next write: all of them, or, on an error here, none."""
        if isinstance(platform_id, UUID):
            platform_id = Id(platform_id.bytes)
        items = [_item(event, platform_id, lane) for event in events]
        for item in items:
            self._enqueue(item)
        return [item.outcome for item in items]

    @contextmanager
    def _told_of_stop(self) -> Iterator[None]:
        """Make an error of it when what is waited for is cancelled, and not whoever waits."""
        try:
            yield
        except CancelledError:
            task = asyncio.current_task()
            if self._is_stopped and task is not None and not task.cancelling():
                raise UnavailableError(_STOPPED) from None
            raise

    def _enqueue(self, item: "_Sent | _Malformed") -> None:
        if self._is_stopped:
            raise UnavailableError(_STOPPED)
        self._outgoing.append(item)
        self._has_outgoing.set()

    async def _outcomes(self, futures: Sequence["Future[Outcome]"]) -> list[Outcome]:
        try:
            async with asyncio.timeout(self._reply_timeout_s):
                with self._told_of_stop():
                    # One after the other: a write succeeds or fails for all of them.
                    return [await future for future in futures]
        except TimeoutError:
            message = f"no outcome within {self._reply_timeout_s} s"
            raise ReplyTimeoutError(message) from None
        finally:
            _abandon(futures)

    async def _send(self) -> None:
        """Write what has gathered; meanwhile the next write gathers."""
        await self._has_outgoing.wait()
        await self._gather()
        self._has_outgoing.clear()
        batch, self._outgoing = self._outgoing, []
        unaccepted, self._unaccepted = self._unaccepted, []
        try:
            messages = await self._accept(batch)
        except CancelledError:
            _abandon([item.outcome for item in batch])
            _abandon(unaccepted)
            raise
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            _log.warning("events not accepted", count=len(batch), error=str(error))
            for item in batch:
                if not item.outcome.done():
                    item.outcome.set_exception(_unavailable(error))
            for waiting in unaccepted:
                if not waiting.done():
                    waiting.set_exception(_unavailable(error))
            return
        for waiting in unaccepted:
            if not waiting.done():
                waiting.set_result(None)
        await self.ring(*drain_all((message.lane, message.shard) for message in messages))

    async def _gather(self) -> None:
        """Let more come in while others wait for their outcomes, until one is there; but not long.

        As Nagle's algorithm does with small packets: whoever comes alone goes at once, and under
        load a write, a doorbell and a batch of the engine are for several. Whoever only waits for
        acceptance comes with many anyway.
        """
        if self._waiting and not self._unaccepted:
            self._heard.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._gather_s):
                    await self._heard.wait()

    async def _accept(self, batch: Sequence["_Sent | _Malformed"]) -> list[Message]:
        """Commit `batch` to the inbox; from then on its outcomes are waited for."""
        now = datetime.now(UTC)
        malformed = [item for item in batch if isinstance(item, _Malformed)]
        sent = [item for item in batch if isinstance(item, _Sent)]
        # One COPY is a database transaction by itself, without the round trips around it.
        writing = self._engine.begin() if malformed else self._single.connect()
        async with writing as outer:
            connection = await driver_async(outer)
            await self._learn(connection, filter(None, map(_card_id, sent)))
            messages = [
                address(
                    item.body,
                    await self._owner(connection, item),
                    lane=item.lane,
                    reply_to=self._reply_list,
                    at=now,
                )
                for item in sent
            ]
            # Before they are written: a worker may be quicker with its reply than we.
            for message, item in zip(messages, sent, strict=True):
                self._waiting[message.id] = _Waiting(message, item.outcome)
            await inbox.accept_async(connection, messages)
            if malformed:
                await rejections.keep(connection, [_rejection(item, now) for item in malformed])
        for refused in malformed:
            _resolve(refused.outcome, _refusal(refused))
        return messages

    async def _learn(self, connection: AsyncConnection[Any], card_ids: Iterable[Id]) -> None:
        """Remember where cards belong; those that do not exist are asked for every time."""
        if len(self._cards) > _MANY_CARDS:
            self._cards.clear()
        unknown = {card_id for card_id in card_ids if card_id not in self._cards}
        if unknown:
            self._cards.update(await inbox.routes_of(connection, unknown))

    async def _owner(self, connection: AsyncConnection[Any], item: _Sent) -> Owner:
        card_id = _card_id(item)
        if card_id:
            known = self._cards.get(card_id)
            owner = known.owner if known else None
        else:
            owner = await inbox.owner_of_account(connection, Id.parse(item.body["accountId"]))
        if owner and item.platform_id in {None, owner.platform_id}:
            return owner
        return Owner(UNROUTED.customer_id, item.platform_id or UNROUTED.platform_id)

    # --- out -------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Hear replies."""
        try:
            reply = await self._redis.blpop([self._reply_list], timeout=1)
        except (RedisError, OSError) as error:
            self._leave_redis_alone(error)
            await asyncio.sleep(_REDIS_PAUSE_S)
            return
        if reply:
            self._heard_at = monotonic()
            self._heard.set()
            told = reply[1]
            assert isinstance(told, bytes), "this client decodes nothing"
            for key, outcome in replies.read(told):
                waiting = self._waiting.pop(key, None)
                if waiting:
                    _resolve(waiting.outcome, outcome)

    async def _look_up(self) -> None:
        """Ask the record for outcomes whose reply is late, or cannot come."""
        await asyncio.sleep(_LOOK_UP_EVERY_S)
        self._forget_who_left()
        late = self._late()
        if not late:
            return
        try:
            async with self._engine.connect() as outer:
                found = await answers.find(await driver_async(outer), late)
        except _AWAY as error:
            _log.warning("outcomes not looked up: PostgreSQL is away", error=str(error))
            return
        for key, outcome in found.items():
            waiting = self._waiting.pop(key, None)
            if waiting:
                _resolve(waiting.outcome, outcome)

    def _late(self) -> list[Message]:
        """Return messages to ask the record about now, the longest waiting first.

        While replies come in, a long queue is only that: it is asked about seldom, and in parts.
        """
        now = monotonic()
        if now < self._redis_away_until:
            patience = 0.0
        elif now - self._heard_at < _PATIENCE_S:
            patience = _LONG_PATIENCE_S
        else:
            patience = _PATIENCE_S
        late = [w for w in self._waiting.values() if now - w.asked_at >= patience][:_MANY_LATE]
        for waiting in late:
            waiting.asked_at = now
        return [waiting.message for waiting in late]

    def _forget_who_left(self) -> None:
        for key in [key for key, waiting in self._waiting.items() if waiting.outcome.done()]:
            del self._waiting[key]

    def _leave_redis_alone(self, error: Exception) -> None:
        now = monotonic()
        if now >= self._redis_away_until:
            _log.warning("Redis is away: outcomes come from the record", error=str(error))
        self._redis_away_until = now + 2 * _REDIS_PAUSE_S


def submit(  # noqa: PLR0913 - where to, and the parameters of Client.submit
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


async def _for_ever(step: Callable[[], Awaitable[None]]) -> None:
    """Take `step` again and again, until this task is cancelled."""
    task = asyncio.current_task()
    assert task is not None
    # Up to Python 3.11 `asyncio.wait_for`, which redis-py sends with, forgets a cancellation that
    # comes in the moment in which it is done: the task still knows of it.
    while not task.cancelling():
        try:
            await step()
        except Exception:  # noqa: BLE001 - the loop never ends
            _log.exception("a step of the client failed; it goes on")
            await asyncio.sleep(_LOOK_UP_EVERY_S)


def _unavailable(error: Exception) -> Exception:
    return UnavailableError(str(error)) if isinstance(error, _AWAY) else error


def _resolve(future: "Future[Outcome]", outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)


def _abandon(futures: "Iterable[Future[Any]]") -> None:
    """Let nobody wait for `futures` any more; what went wrong has been told, once for all."""
    for future in futures:
        if future.done() and not future.cancelled():
            future.exception()
        future.cancel()


def _card_id(item: _Sent) -> Id | None:
    public: str | None = item.body.get("cardId")
    return None if public is None else card_id_of(public)


def _item(
    event: NetworkEvent | Mapping[str, Any] | Unreadable, platform_id: Id | None, lane: Lane
) -> _Sent | _Malformed:
    outcome: Future[Outcome] = asyncio.get_running_loop().create_future()
    if isinstance(event, Unreadable):
        return _unreadable(event, platform_id, outcome)
    try:
        parsed = event if isinstance(event, BaseModel) else NETWORK_EVENT.validate_python(event)
    except ValidationError as error:
        return _malformed(event, error, platform_id, outcome)
    return _Sent(body_of(parsed), platform_id, lane, outcome)


def _malformed(
    event: object, error: ValidationError, platform_id: Id | None, outcome: "Future[Outcome]"
) -> _Malformed:
    said = event if isinstance(event, Mapping) else {}
    return _Malformed(
        body=_written(event),
        reference=_text(said.get("reference")),
        source=_text(said.get("source")),
        detail=explain(error),
        platform_id=platform_id,
        outcome=outcome,
    )


def _unreadable(
    event: Unreadable, platform_id: Id | None, outcome: "Future[Outcome]"
) -> _Malformed:
    return _Malformed(
        body=_storable(event.text),
        reference=None,
        source=None,
        detail=event.detail,
        platform_id=platform_id,
        outcome=outcome,
    )


def _written(event: object) -> str:
    """Return `event` as JSON, or what there is to say of one that JSON has no words for."""
    try:
        return dumps(event, default=repr)
    except (ValueError, TypeError, RecursionError) as error:
        return dumps(f"a {type(event).__name__} that is no JSON: {error}")


def _storable(text: str) -> str:
    """Return `text` with what PostgreSQL cannot keep shown as what it is: unreadable."""
    return text.replace("\x00", "\ufffd").encode(errors="replace").decode()


def _text(value: object) -> str | None:
    """Return `value` if a text column can keep it."""
    if not isinstance(value, str) or "\x00" in value:
        return None
    with suppress(UnicodeEncodeError):
        value.encode()
        return value[:255]
    return None


def _rejection(item: _Malformed, at: datetime) -> RejectionRecord:
    return RejectionRecord(
        id=new_id(),
        customer_id=UNROUTED.customer_id,
        platform_id=item.platform_id or UNROUTED.platform_id,
        source=item.source,
        reference=item.reference,
        body=item.body,
        reason=RejectionReason.MALFORMED,
        detail=item.detail,
        recorded_at=at,
    )


def _refusal(item: _Malformed) -> Outcome:
    return outcomes.outcome(
        item.reference,
        OutcomeType.REJECTED,
        reason=RejectionReason.MALFORMED,
        detail=item.detail,
    )
