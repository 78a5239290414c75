"""Writes timeout reversals to the inbox, and tries again until they are durable."""

import asyncio
from asyncio import Future, Task
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from time import monotonic
from typing import Any, Final

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.messaging.timeout_reversals import reversal_of
from cardledger.ledger.storage.engines import driver_async
from cardledger.ledger.storage.ids import new_id
from cardledger.workers.client.errors import DATABASE_UNAVAILABLE, STOPPED, UnavailableError
from cardledger.workers.client.redis_gateway import RedisGateway
from cardledger.workers.signals import database_failures
from cardledger.workers.signals.doorbell import drain_all
from cardledger.workers.signals.outage_log import DATABASE

_ROWS_PER_WRITE: Final = 1_000
_FIRST_WRITE_TIMEOUT_S: Final = 0.4  # A retry, on another connection, is still in time.
_WRITE_TIMEOUT_LIMIT_S: Final = 5.0
_FIRST_RETRY_DELAY_S: Final = 0.1
_RETRY_DELAY_LIMIT_S: Final = 1.0  # As long as a caller waits for its reversal.

_log = structlog.get_logger()


class TimeoutReversals:
    """A queue of timeout reversals, at most one for each submission that callers wait for.

    Apart from the writes of submissions: a write that stalls is what they are for. In which order
    the two are committed does not matter.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        redis: RedisGateway,
        key: InboxKey,
        *,
        now: Callable[[], datetime],
    ) -> None:
        """Write through `engine`, signed with `key`, and notify workers over `redis`.

        `now` is the time by the clock of PostgreSQL.
        """
        self._engine: Final = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._redis: Final = redis
        self._key: Final = key
        self._now: Final = now
        self._queue: Final[deque[tuple[Message, Future[None]]]] = deque()
        self._keys: Final[Counter[tuple[str, str, str]]] = Counter()  # Of what is queued.
        self._has_queued: Final = asyncio.Event()
        self._attempts: Final[set[Task[None]]] = set()  # Under way, most of them late.
        self._timeout_s = _FIRST_WRITE_TIMEOUT_S
        self._retry_delay_s = _FIRST_RETRY_DELAY_S
        self._is_closed = False

    def put(self, authorization: Message) -> "Future[None]":
        """Queue the reversal of `authorization`; return a future that is set once it is durable.

        Raises: UnavailableError once closed.
        """
        if self._is_closed:
            raise UnavailableError(STOPPED)
        durable: Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((reversal_of(authorization, at=self._now()), durable))
        self._keys[_key_of(authorization.body)] += 1
        self._has_queued.set()
        return durable

    def has_queued(self, authorization: Mapping[str, Any]) -> bool:
        """Return whether the reversal of this authorization, a body, is not durable yet."""
        return _key_of(authorization) in self._keys

    async def write_next(self) -> None:
        """Write what is queued; pause after a failure, longer after each further one."""
        await self._has_queued.wait()
        if await self._write():
            self._retry_delay_s = _FIRST_RETRY_DELAY_S
            return
        delay_s = self._retry_delay_s
        self._retry_delay_s = min(2 * delay_s, _RETRY_DELAY_LIMIT_S)
        await asyncio.sleep(delay_s)

    async def close(self, limit_s: float) -> None:
        """Write what is still queued, again and again while PostgreSQL fails, within `limit_s`.

        What cannot be written is logged: approvals stand whose callers were told otherwise.
        """
        until = monotonic() + limit_s
        # An outage has made them long; the first attempt must not take all of the time.
        self._timeout_s, self._retry_delay_s = _FIRST_WRITE_TIMEOUT_S, _FIRST_RETRY_DELAY_S
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self._queue and monotonic() < until:
                    await self.write_next()
        self._is_closed = True
        for attempt in self._attempts:
            if not attempt.cancelling():
                attempt.cancel()  # A later one has written the same, or there is no time left.
        if self._attempts:
            await asyncio.wait(self._attempts)
        if self._queue:
            lost = [_key_of(message.body["authorization"]) for message, _ in self._queue]
            _log.error("timeout reversals may not be written", authorizations=lost)

    async def _write(self) -> bool:
        """Write the oldest; return whether they are durable. They stay queued until they are."""
        batch = [self._queue[n] for n in range(min(len(self._queue), _ROWS_PER_WRITE))]
        # With new ids: an earlier attempt whose reply was lost may have been committed. The
        # idempotency key makes the second of the two a duplicate.
        messages = [replace(message, id=new_id()) for message, _ in batch]
        attempt = asyncio.create_task(self._accept(messages))
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)
        attempt.add_done_callback(_retrieve)
        try:
            # Left behind when it is late: a connection that is silent ends a cancelled statement
            # later, and the next attempt uses another.
            await asyncio.wait_for(asyncio.shield(attempt), self._timeout_s)
        except (*DATABASE_UNAVAILABLE, TimeoutError) as error:
            attempt.cancel()
            database_failures.note(error)
            self._timeout_s = min(2 * self._timeout_s, _WRITE_TIMEOUT_LIMIT_S)
            return False
        DATABASE.succeeded()
        self._timeout_s = _FIRST_WRITE_TIMEOUT_S
        for message, durable in batch:
            self._queue.popleft()
            self._forget(message.body["authorization"])
            if not durable.done():
                durable.set_result(None)
        if not self._queue:
            self._has_queued.clear()
        self._redis.notify(drain_all((message.lane, message.shard) for message in messages))
        return True

    async def _accept(self, messages: Sequence[Message]) -> None:
        async with self._engine.connect() as outer:
            await inbox.accept_async(await driver_async(outer), messages, self._key)

    def _forget(self, authorization: Mapping[str, Any]) -> None:
        key = _key_of(authorization)
        self._keys[key] -= 1
        if not self._keys[key]:
            del self._keys[key]


def _key_of(authorization: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return what identifies an authorization: senders of other platforms may use its key."""
    return authorization["source"], authorization["reference"], authorization["cardId"]


def _retrieve(attempt: "Task[None]") -> None:
    """Retrieve what an attempt has raised that was left behind: it was reported as late."""
    if not attempt.cancelled():
        attempt.exception()
