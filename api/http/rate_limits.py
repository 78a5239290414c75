"""Rate limits: callers over the limit get 429 and the time to wait.

Requests are counted in memory, which costs microseconds. Ten times a second the processes exchange
their counts over Redis, so a limit is exceeded at most by the requests between two exchanges.
Without Redis each process continues with its own counts: a limit protects other callers and never
refuses callers within it (docs/decisions/0016-rate-limits.md).
"""

import asyncio
import math
import time
from asyncio import Task
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import islice
from types import TracebackType
from typing import Final, Self, TypeVar

import structlog
from fastapi import Request

from cardledger.api.http import sliding_window
from cardledger.api.http.errors import ApiError
from cardledger.api.http.sliding_window import Count, Rate
from cardledger.ledger.storage.secrets.key_ring import ServerKey
from cardledger.schema.wire.errors import Code
from cardledger.workers.client import background
from cardledger.workers.metrics import counted
from cardledger.workers.signals.shared_counts import (
    EXCHANGE_LIMIT,
    Increment,
    SharedCounts,
    SharedCountsUnavailableError,
)

_EXCHANGE_INTERVAL_S: Final = 0.1
_REDIS_PAUSE_S: Final = 1.0  # Before the next attempt after a failure of Redis.
_PRUNE_THRESHOLD: Final = 10_000  # Number of counts from which expired ones are removed.
_COUNT_LIMIT: Final = 50_000  # Counts of one limit, at about 400 bytes each.

_log = structlog.get_logger()

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class RateLimits:
    """The counts of this process and of the others. An async context manager."""

    def __init__(
        self,
        limits: Mapping[str, Rate | None],
        redis_url: str,
        secret_key: str | ServerKey,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Apply `limits` by name; None is no limit.

        Counts are shared with the processes that have the same server key.
        """
        self._limits: Final = {name: rate for name, rate in limits.items() if rate is not None}
        self._clock: Final = clock
        # A table for each limit: failures of strangers never displace the counts of platforms.
        self._counts: Final[dict[str, OrderedDict[str, Count]]] = {
            name: OrderedDict() for name in self._limits
        }
        # By caller and window, oldest first, for the next exchanges.
        self._unsent: Final[dict[str, OrderedDict[tuple[str, int], int]]] = {
            name: OrderedDict() for name in self._limits
        }
        self._has_unsent: Final = asyncio.Event()
        self._shared: Final = SharedCounts(redis_url, secret_key)
        self._task: Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._exchange_counts())
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await background.end(self._task)
        await self._shared.close()

    def admit(self, name: str, who: str) -> None:
        """Count one request of `who` against the limit `name`.

        Raises: ApiError RATE_LIMITED when it exceeds the limit; it is not counted then, so a caller
        that keeps trying is admitted as soon as one that waits.
        """
        rate = self._limits.get(name)
        if rate is None:
            return
        count = self._within(name, rate, who)
        count.now += 1
        self._keep_unsent(name, (who, count.window))

    def check(self, name: str, who: str) -> None:
        """Raise as `admit` does; counts nothing."""
        rate = self._limits.get(name)
        if rate is not None and who in self._counts[name]:
            self._within(name, rate, who)

    def count_more(self, name: str, who: str, more: int) -> None:
        """Count `more` requests of `who`, for one that was admitted and is as large as they are."""
        if name in self._limits and more:
            count = self._count(name, who, self._window(name))
            count.now += more
            self._keep_unsent(name, (who, count.window), more)

    def is_exceeded(self, name: str, who: str) -> bool:
        """Return whether `who` is over the limit `name` now; counts nothing."""
        rate = self._limits.get(name)
        if rate is None or who not in self._counts[name]:
            return False
        at = self._clock()
        count = self._count(name, who, sliding_window.window_of(rate, at))
        return sliding_window.wait_s(rate, count, at) > 0

    def _within(self, name: str, rate: Rate, who: str) -> Count:
        at = self._clock()
        count = self._count(name, who, sliding_window.window_of(rate, at))
        wait_s = sliding_window.wait_s(rate, count, at)
        if wait_s > 0:
            counted.refuse(counted.Refusal.RATE_LIMIT)
            raise _rate_limited(rate, wait_s)
        return count

    def _count(self, name: str, who: str, window: int) -> Count:
        counts = self._counts[name]
        count = counts.get(who) or Count(window)
        remember(counts, who, count, limit=_COUNT_LIMIT)
        sliding_window.turn(count, window)
        return count

    def _window(self, name: str) -> int:
        return sliding_window.window_of(self._limits[name], self._clock())

    def _keep_unsent(self, name: str, key: tuple[str, int], times: int = 1) -> None:
        """Keep a count for the next exchange; beyond the limit it stays in this process."""
        unsent = self._unsent[name]
        if key in unsent or len(unsent) < _COUNT_LIMIT:
            unsent[key] = unsent.get(key, 0) + times
            self._has_unsent.set()

    # --- between processes -----------------------------------------------------------------

    async def _exchange_counts(self) -> None:
        is_away = False
        while True:
            await self._has_unsent.wait()
            await asyncio.sleep(_REDIS_PAUSE_S if is_away else _EXCHANGE_INTERVAL_S)
            self._prune()
            try:
                await self._exchange()
            except SharedCountsUnavailableError as error:
                if not is_away:
                    _log.warning("rate limits count in this process only", error=str(error))
                is_away = True
            else:
                is_away = False

    async def _exchange(self) -> None:
        """Add unsent counts to the common counts in Redis and read the totals.

        Of each limit the oldest ones, so that a flood against one limit delays no other.
        """
        share = EXCHANGE_LIMIT // max(1, len(self._limits))
        sending = {
            (name, who, window): times
            for name, unsent in self._unsent.items()
            for (who, window), times in islice(unsent.items(), share)
        }
        totals = await self._shared.exchange(
            [
                Increment(
                    name=f"{name}:{who}",
                    window=window,
                    times=times,
                    expires_s=2 * self._limits[name].period_s + 1,
                )
                for (name, who, window), times in sending.items()
            ]
        )
        for (name, who, window), (now, before) in zip(sending, totals, strict=True):
            self._forget_sent(name, (who, window), sending[name, who, window])
            self._learn(name, who, window, now, before)
        if not any(self._unsent.values()):
            self._has_unsent.clear()

    def _forget_sent(self, name: str, key: tuple[str, int], times: int) -> None:
        unsent = self._unsent[name]
        unsent[key] -= times
        if not unsent[key]:  # Nothing was counted during the exchange.
            del unsent[key]

    def _learn(self, name: str, who: str, window: int, now: int, before: int) -> None:
        count = self._counts[name].get(who)
        if count is None:
            return
        total = max(0, now + self._unsent[name].get((who, window), 0))
        if count.window == window:
            count.now, count.before = total, max(0, before)
        elif count.window == window + 1:  # A new window began during the exchange.
            count.before = total

    def _prune(self) -> None:
        """Remove expired counts, where they are many, and unsent counts of expired windows."""
        at = self._clock()
        past = {name: sliding_window.window_of(rate, at) - 1 for name, rate in self._limits.items()}
        for name, counts in self._counts.items():
            if len(counts) >= _PRUNE_THRESHOLD:
                for who in [who for who, count in counts.items() if count.window < past[name]]:
                    del counts[who]
        for name, unsent in self._unsent.items():
            while unsent and next(iter(unsent))[1] < past[name]:
                unsent.popitem(last=False)


def remember(table: "OrderedDict[_Key, _Value]", key: _Key, value: _Value, *, limit: int) -> None:
    """Put `value` into `table`; above `limit` entries, the one unused for longest is removed."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > limit:
        table.popitem(last=False)


def address_of(request: Request) -> str:
    """Return the caller's address; behind a proxy the forwarded one."""
    return request.client.host if request.client is not None else ""


def _rate_limited(rate: Rate, wait_s: float) -> ApiError:
    wait_ms = max(1, math.ceil(wait_s * 1000))
    headers = {
        "Retry-After": str(math.ceil(wait_ms / 1000)),
        "retry-after-ms": str(wait_ms),
    }
    message = (
        f"Too many requests: at most {rate.limit} in {rate.period_s} s;"
        f" retry in {headers['Retry-After']} s."
    )
    return ApiError(Code.RATE_LIMITED, message, headers=headers)
