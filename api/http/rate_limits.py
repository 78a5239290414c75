"""Rate limits: who asks too often is told when to come again.

Counted is in memory, which costs a request microseconds. Ten times a second the processes tell
each other over Redis what they have counted; so a limit is exceeded at most by what they let in
between two such moments. Without Redis each goes on with its own count: a limit keeps one caller
from harming others, and is never a reason to refuse those who do not
(docs/decisions/0016-rate-limits.md).
"""

import asyncio
import math
import time
from asyncio import Task
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address, ip_address, ip_network
from types import TracebackType
from typing import Final, Self
from zlib import crc32

import redis.asyncio as redis
import structlog
from fastapi import Request
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from cardledger.api.http import sliding_window
from cardledger.api.http.errors import ApiError
from cardledger.api.http.sliding_window import Count, Rate
from cardledger.schema.wire.errors import Code

_TELL_EVERY_S: Final = 0.1
_REDIS_PAUSE_S: Final = 1.0  # How long Redis is left alone after it failed.
_MANY: Final = 10_000  # Counts, before those of the past are looked for and dropped.
_TOO_MANY: Final = 100_000  # Counts at all, at about 300 bytes each.
_NAMES: Final = 1024  # What one address can ask about apart; an address costs no more memory.

_log = structlog.get_logger()


class RateLimits:
    """What this process has counted, and what it knows of the others. An async context manager."""

    def __init__(
        self,
        limits: Mapping[str, Rate | None],
        redis_url: str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Hold callers to `limits`, by name; None is no limit."""
        self._limits: Final = {name: rate for name, rate in limits.items() if rate is not None}
        self._clock: Final = clock
        self._counts: Final[dict[tuple[str, str], Count]] = {}
        self._untold: dict[tuple[str, str, int], int] = {}
        self._has_untold: Final = asyncio.Event()
        self._redis: Final = redis.Redis.from_url(
            redis_url, socket_timeout=1.0, socket_connect_timeout=0.5, retry=Retry(NoBackoff(), 0)
        )
        self._task: Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._tell_for_ever())
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        while self._task is not None and not self._task.done():
            # Again and again: see cardledger.workers.client.background.
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_TELL_EVERY_S)
        await self._redis.aclose()

    def admit(self, name: str, who: str) -> None:
        """Count `who` once against the limit `name`, unless that would be too often.

        Raises: ApiError RATE_LIMITED, and nothing is counted: who keeps asking is let in again as
        soon as who waits.
        """
        rate = self._limits.get(name)
        if rate is None:
            return
        at = self._clock()
        count = self._count(name, who, sliding_window.window_of(rate, at))
        wait_s = sliding_window.wait_s(rate, count, at)
        if wait_s > 0:
            raise _too_often(rate, wait_s)
        self._add(name, who, count, 1)

    @contextmanager
    def guessing(self, name: str, who: str) -> Iterator[None]:
        """Count what happens in the block when it is refused.

        Counted before it begins, so that many at once get no more tries than one by one.
        Raises: ApiError RATE_LIMITED; the block is not entered.
        """
        self.admit(name, who)
        try:
            yield
        except ApiError:
            raise
        except BaseException:
            self._take_back(name, who)  # We failed, not the guess.
            raise
        else:
            self._take_back(name, who)

    def _take_back(self, name: str, who: str) -> None:
        rate = self._limits.get(name)
        if rate is not None:
            self._add(
                name, who, self._count(name, who, sliding_window.window_of(rate, self._clock())), -1
            )

    def _count(self, name: str, who: str, window: int) -> Count:
        count = self._counts.get((name, who))
        if count is None:
            if len(self._counts) >= _TOO_MANY:
                self._counts.clear()
            count = self._counts[name, who] = Count(window)
        sliding_window.turn(count, window)
        return count

    def _add(self, name: str, who: str, count: Count, times: int) -> None:
        count.now = max(0, count.now + times)
        key = name, who, count.window
        self._untold[key] = self._untold.get(key, 0) + times
        self._has_untold.set()

    # --- between processes -----------------------------------------------------------------

    async def _tell_for_ever(self) -> None:
        is_away = False
        while True:
            await self._has_untold.wait()
            await asyncio.sleep(_REDIS_PAUSE_S if is_away else _TELL_EVERY_S)
            self._forget()
            try:
                await self._tell()
            except (RedisError, OSError) as error:
                if not is_away:
                    _log.warning("rate limits count in this process only", error=str(error))
                is_away = True
            else:
                is_away = False

    async def _tell(self) -> None:
        """Add to the common counts what is new here, and learn what they are now."""
        telling, self._untold = self._untold, {}
        self._has_untold.clear()
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for (name, who, window), times in telling.items():
                    key = _key(name, who, window)
                    await pipeline.incrby(key, times)  # Which only queues it.
                    await pipeline.expire(key, 2 * self._limits[name].period_s + 1)
                    await pipeline.get(_key(name, who, window - 1))
                said = await pipeline.execute()
        except BaseException:
            for news, times in telling.items():
                self._untold[news] = self._untold.get(news, 0) + times
            self._has_untold.set()
            raise
        totals = zip(telling, said[::3], said[2::3], strict=True)
        for (name, who, window), now, before in totals:
            self._learn(name, who, window, int(now), int(before or 0))

    def _learn(self, name: str, who: str, window: int, now: int, before: int) -> None:
        count = self._counts.get((name, who))
        if count is None:
            return
        total = max(0, now + self._untold.get((name, who, window), 0))
        if count.window == window:
            count.now, count.before = total, max(0, before)
        elif count.window == window + 1:  # It turned while Redis was asked.
            count.before = total

    def _forget(self) -> None:
        """Drop what is past: counts that say nothing any more, and news that nobody wants."""
        at = self._clock()
        past = {name: sliding_window.window_of(rate, at) - 1 for name, rate in self._limits.items()}
        if len(self._counts) >= _MANY:
            for key in [key for key, one in self._counts.items() if one.window < past[key[0]]]:
                del self._counts[key]
        if len(self._untold) >= _MANY:
            for name, who, window in list(self._untold):
                if window < past[name] or len(self._untold) >= _TOO_MANY:
                    del self._untold[name, who, window]


def address_of(request: Request) -> str:
    """Return the address that `request` came from; behind a proxy, what the proxy says it was."""
    return request.client.host if request.client is not None else ""


def stranger(address: str, about: str) -> str:
    """Return as whom one is counted who has not proved to be anybody yet.

    By address and by what they ask about, so that behind one address, which may be a whole
    company's, nobody pays for what another one tries. Whoever has an IPv6 address has 2⁶⁴.
    """
    return f"{_network(address)}|{crc32(about.encode()) % _NAMES}"


def _network(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:  # A Unix socket has none.
        return ""
    if isinstance(found, IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ip_network((int(found), 64), strict=False).network_address)


def _key(name: str, who: str, window: int) -> str:
    return f"cardledger:rate:{name}:{who}:{window}"


def _too_often(rate: Rate, wait_s: float) -> ApiError:
    wait_ms = max(1, math.ceil(wait_s * 1000))
    headers = {
        "Retry-After": str(math.ceil(wait_ms / 1000)),
        "retry-after-ms": str(wait_ms),
    }
    message = (
        f"too many requests: at most {rate.limit} in {rate.period_s} s;"
        f" send it again in {headers['Retry-After']} s"
    )
    return ApiError(Code.RATE_LIMITED, message, headers=headers)
