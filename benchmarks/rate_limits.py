"""Compare `api/http/rate_limits.py` with the library `limits` (docs/decisions/0016).

    python -m benchmarks.rate_limits

All in one run, on one embedded Redis: the processor time and the elapsed time of one admitted
request, and the memory of one caller. A request to the API takes about 0.4 ms of processor.
"""

import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from limits import RateLimitItemPerMinute
from limits.aio.storage import RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter as RedisLimiter
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter as MemoryLimiter

from cardledger.api.http.rate_limits import RateLimits
from cardledger.api.http.sliding_window import Rate
from cardledger.embedded.servers import OwnRedis

PER_MINUTE = 300_000_000  # Never reached, so that every request is admitted.
CALLERS = 1_000
REQUESTS = 20_000
ROUNDS = 5

Admit = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one admitted request costs, and one caller."""

    processor_us: float
    elapsed_us: float
    caller_bytes: float


async def _ours(redis_url: str) -> Cost:
    async with RateLimits({"requests": Rate(PER_MINUTE, 60)}, redis_url, "0" * 32) as limits:

        async def admit(caller: str) -> None:
            limits.admit("requests", caller)

        return await _measure(admit, requests=REQUESTS)


async def _limits_in_memory(_redis_url: str) -> Cost:
    limiter = MemoryLimiter(MemoryStorage())
    item = RateLimitItemPerMinute(PER_MINUTE)

    async def admit(caller: str) -> None:
        assert limiter.hit(item, caller)

    return await _measure(admit, requests=REQUESTS)


async def _limits_in_redis(redis_url: str) -> Cost:
    storage = RedisStorage(f"async+{redis_url}", implementation="redispy")
    limiter = RedisLimiter(storage)
    item = RateLimitItemPerMinute(PER_MINUTE)

    async def admit(caller: str) -> None:
        assert await limiter.hit(item, caller)

    return await _measure(admit, requests=REQUESTS // 10)


async def _measure(admit: Admit, *, requests: int) -> Cost:
    callers = [f"token-{number:032}" for number in range(CALLERS)]
    gc.collect()
    tracemalloc.start()
    for caller in callers:  # Also connects and loads scripts.
        await admit(caller)
    caller_bytes = tracemalloc.get_traced_memory()[0] / CALLERS
    tracemalloc.stop()
    processor, elapsed = [], []
    for _ in range(ROUNDS):
        processor_start, start = time.process_time(), time.perf_counter()
        for number in range(requests):
            await admit(callers[number % CALLERS])
        processor.append((time.process_time() - processor_start) / requests * 1e6)
        elapsed.append((time.perf_counter() - start) / requests * 1e6)
    return Cost(
        processor_us=median(processor), elapsed_us=median(elapsed), caller_bytes=caller_bytes
    )


def main() -> None:
    """Print one line for each way to count."""
    with tempfile.TemporaryDirectory(prefix="cardledger-bench-") as directory:
        server = OwnRedis(Path(directory))
        server.start()
        try:
            print(f"on {server.origin}, medians of {ROUNDS} rounds, {CALLERS:,} callers")
            for name, way in (
                ("cardledger, in memory, shared every 0.1 s", _ours),
                ("limits, in memory, not shared", _limits_in_memory),
                ("limits, in Redis", _limits_in_redis),
            ):
                cost = asyncio.run(way(server.url))
                print(
                    f"{name:<42} {cost.processor_us:7.1f} us processor"
                    f" {cost.elapsed_us:7.1f} us elapsed {cost.caller_bytes:7.0f} bytes a caller"
                )
        finally:
            server.stop()


if __name__ == "__main__":
    main()
