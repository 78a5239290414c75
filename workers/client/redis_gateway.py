"""The client's connection to Redis: doorbells out, replies in; nothing depends on it but time."""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final

import redis.asyncio as redis
import structlog
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from cardledger.ledger.storage.ids import new_id
from cardledger.workers.signals.doorbell import Doorbell, notify

_RETRY_DELAY_S: Final = 0.5  # Between two attempts to listen while Redis fails.
_UNAVAILABLE_S: Final = 1.0  # How long Redis counts as unavailable after a failure.
_LISTEN_S: Final = 1  # How long one wait for a reply lasts.

_log = structlog.get_logger()


class RedisGateway:
    """Sends doorbells and receives replies; a failure makes callers fall back to polling."""

    def __init__(self, url: str) -> None:
        self.reply_list: Final = f"cardledger:replies:{new_id()}"
        self._redis: Final = redis.Redis.from_url(
            url,
            socket_timeout=2.0,  # Above `_LISTEN_S`.
            socket_connect_timeout=0.5,
            retry=Retry(NoBackoff(), 0),
        )
        self._unavailable_until = 0.0

    @property
    def is_available(self) -> bool:
        """Whether Redis has not failed recently."""
        return monotonic() >= self._unavailable_until

    async def notify(self, doorbells: Sequence[Doorbell]) -> None:
        """Send `doorbells`, unless Redis is unavailable: then sweepers find the work later."""
        if not doorbells or not self.is_available:
            return
        pipeline = self._redis.pipeline(transaction=False)
        notify(pipeline, doorbells)
        try:
            await pipeline.execute()
        except (RedisError, OSError) as error:
            self._note_failure(error)

    async def next_reply(self) -> bytes | None:
        """Wait a moment for the next reply; None when there is none."""
        try:
            item = await self._redis.blpop([self.reply_list], timeout=_LISTEN_S)
        except (RedisError, OSError) as error:
            self._note_failure(error)
            await asyncio.sleep(_RETRY_DELAY_S)
            return None
        if not item:
            return None
        reply = item[1]
        assert isinstance(reply, bytes), "this client decodes nothing"
        return reply

    async def ping(self) -> bool:
        """Return whether Redis responds within a second."""
        try:
            async with asyncio.timeout(1.0):
                await self._redis.ping()
        except (RedisError, OSError, TimeoutError):
            return False
        return True

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    def _note_failure(self, error: Exception) -> None:
        if self.is_available:
            _log.warning("redis unavailable; falling back to polling", error=str(error))
        self._unavailable_until = monotonic() + _UNAVAILABLE_S
