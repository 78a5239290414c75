"""Counters that processes share over Redis: rate limits add their counts and read the totals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

_KEY: Final = "cardledger:rate:{name}:{window}"


class SharedCountsUnavailableError(Exception):
    """Redis did not answer; the counts may or may not have been added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Increment:
    """An addition to the counter `name` of a window, which Redis forgets after `expires_s`."""

    name: str
    window: int
    times: int
    expires_s: int


class SharedCounts:
    """Counters in Redis, by name and window."""

    def __init__(self, redis_url: str) -> None:
        """Connect on the first exchange."""
        self._redis: Final = redis.Redis.from_url(
            redis_url, socket_timeout=1.0, socket_connect_timeout=0.5, retry=Retry(NoBackoff(), 0)
        )

    async def exchange(self, increments: Sequence[Increment]) -> list[tuple[int, int]]:
        """Add `increments`; return for each the total of its window and of the window before.

        Raises: SharedCountsUnavailableError.
        """
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for increment in increments:
                    key = _KEY.format(name=increment.name, window=increment.window)
                    await pipeline.incrby(key, increment.times)  # Which only queues it.
                    await pipeline.expire(key, increment.expires_s)
                    await pipeline.get(
                        _KEY.format(name=increment.name, window=increment.window - 1)
                    )
                replies = await pipeline.execute()
        except (RedisError, OSError) as error:
            raise SharedCountsUnavailableError(str(error)) from error
        totals = zip(replies[::3], replies[2::3], strict=True)
        return [(int(now), int(before or 0)) for now, before in totals]

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()
