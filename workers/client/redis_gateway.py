"""The client's connection to Redis: doorbells out, replies in. A loss costs time only.

No caller ever waits for Redis: doorbells are sent by a background task, and a Redis that hangs is
treated like one that is dead, after a quarter of a second of that task's time.
"""

import asyncio
from asyncio import Task
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from redis.exceptions import RedisError, ResponseError

from cardledger.ledger.storage.ids import new_id
from cardledger.workers.client import replies
from cardledger.workers.signals.doorbell import Doorbell, merged, notify
from cardledger.workers.signals.outage_log import REDIS
from cardledger.workers.signals.redis_connections import connect_async

_RETRY_DELAY_S: Final = 0.5  # Between two attempts to listen while Redis fails.
_PROBE_DELAY_S: Final = 1.0  # How long no doorbell is sent after one has failed.
_LISTEN_S: Final = 1  # How long one wait for a reply lasts.
_LISTEN_TIMEOUT_S: Final = 2.0  # Above `_LISTEN_S`.
_SEND_TIMEOUT_S: Final = 0.25


class RedisGateway:
    """Sends doorbells and receives replies; a failure makes callers fall back to polling."""

    def __init__(self, url: str) -> None:
        """Connect to `url` with the first command."""
        self.reply_list: Final = f"{replies.LISTS}{new_id()}"
        self._sending: Final = connect_async(
            url, timeout_s=_SEND_TIMEOUT_S, connect_timeout_s=_SEND_TIMEOUT_S
        )
        self._listening: Final = connect_async(
            url, timeout_s=_LISTEN_TIMEOUT_S, connect_timeout_s=_SEND_TIMEOUT_S
        )
        self._doorbells: list[Doorbell] = []
        self._has_doorbells: Final = asyncio.Event()
        self._ping: Task[bool] | None = None
        self._can_send = True
        self._can_listen = True
        self._next_probe_at = 0.0

    @property
    def is_available(self) -> bool:
        """Whether the last attempts to send and to listen succeeded."""
        return self._can_send and self._can_listen

    def notify(self, doorbells: Sequence[Doorbell]) -> None:
        """Have `doorbells` sent, unless Redis is unavailable: then sweepers find the work later."""
        if doorbells and (self._can_send or monotonic() >= self._next_probe_at):
            self._doorbells = merged([*self._doorbells, *doorbells])
            self._has_doorbells.set()

    async def send_next(self) -> None:
        """Wait for doorbells and send them; those that come meanwhile share the next round trip."""
        await self._has_doorbells.wait()
        await self._send()

    async def next_reply(self) -> bytes | None:
        """Wait a moment for the next reply; None when there is none."""
        try:
            item = await self._listening.blpop([self.reply_list], timeout=_LISTEN_S)
        except (RedisError, OSError) as error:
            REDIS.failed(error)
            if isinstance(error, ResponseError):
                await self.clear_replies()  # A key of another type, perhaps.
            else:
                await self._pause()
            return None
        self._can_listen = True
        REDIS.succeeded()
        if not item:
            return None
        reply = item[1]
        assert isinstance(reply, bytes), "this client decodes nothing"
        return reply

    async def clear_replies(self) -> None:
        """Delete the replies that wait, none of which can be believed, and listen to none for now.

        Meanwhile outcomes are looked up at once.
        """
        with suppress(RedisError, OSError):
            await self._listening.unlink(self.reply_list)
        await self._pause()

    async def _pause(self) -> None:
        self._can_listen = False
        await asyncio.sleep(_RETRY_DELAY_S)

    async def ping(self) -> bool:
        """Return whether Redis responds; concurrent callers share one ping.

        Without a connection to spare for each of them: a health check must not add to the load.
        """
        if self._ping is None or self._ping.done():
            self._ping = asyncio.create_task(self._responds())
        return await asyncio.shield(self._ping)

    async def close(self) -> None:
        """Send what waits, then close the connections."""
        if self._doorbells and self._can_send:
            await self._send()
        if self._ping is not None:
            await self._ping
        await self._sending.aclose()
        await self._listening.aclose()

    async def _send(self) -> None:
        doorbells, self._doorbells = self._doorbells, []
        self._has_doorbells.clear()
        pipeline = self._sending.pipeline(transaction=False)
        notify(pipeline, doorbells)
        try:
            await pipeline.execute()
        except (RedisError, OSError) as error:
            REDIS.failed(error)
            self._can_send = False
            self._next_probe_at = monotonic() + _PROBE_DELAY_S
        else:
            self._can_send = True

    async def _responds(self) -> bool:
        try:
            await self._sending.ping()
        except (RedisError, OSError):
            return False
        return True
