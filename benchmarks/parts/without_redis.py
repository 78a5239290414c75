"""`python -m benchmarks.parts.without_redis`: what a caller pays while Redis is unavailable.

One client sends authorizations one after the other to one worker process: with Redis, with a port
on which nothing listens, and with one that accepts connections and never answers. A figure is the
time from `submit` to the outcome, once client and worker have found out about their Redis.
"""

import asyncio
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Final

import typer

from benchmarks import workload
from benchmarks.overload import client_of, worker
from benchmarks.results.figures import quantile
from benchmarks.workbench import SECRET_KEY, Bench, bench, server
from benchmarks.workload import Cardholder
from cardledger.embedded.servers import find_redis
from cardledger.workers.client import Client
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.signals.roles import WorkerRole

_CARDHOLDERS: Final = 50
_WARM_UP_S: Final = 5.0  # A silent Redis is noticed after two seconds.

_NUMBERS: Final = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """How long a caller waited for each outcome, in milliseconds, by the Redis that there was."""

    redis: str
    waited_ms: Sequence[float]

    @property
    def line(self) -> str:
        """The figures, for people."""
        p50, p99 = (quantile(self.waited_ms, share) for share in (0.5, 0.99))
        return f"{self.redis}: p50 {p50:.1f} ms, p99 {p99:.1f} ms"


@contextmanager
def _port(*, listens: bool) -> Iterator[str]:
    """Yield the URL of a port that never answers, or on which nothing `listens`."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listens:
            taken.listen()
        yield f"redis://127.0.0.1:{taken.getsockname()[1]}/0"


def measure(
    bench: Bench, redis_url: str, *, seconds: float, warm_up_s: float = _WARM_UP_S
) -> list[Latencies]:
    """Return the latencies with the Redis at `redis_url`, with a dead and with a silent one."""
    cardholders = bench.cardholders(_CARDHOLDERS)
    with _port(listens=False) as dead, _port(listens=True) as silent:
        urls = {"with Redis": redis_url, "dead Redis": dead, "silent Redis": silent}
        return [
            Latencies(redis=name, waited_ms=_waits_ms(bench, url, cardholders, warm_up_s, seconds))
            for name, url in urls.items()
        ]


def _waits_ms(
    bench: Bench,
    redis_url: str,
    cardholders: Sequence[Cardholder],
    warm_up_s: float,
    seconds: float,
) -> list[float]:
    config = WorkerConfig(
        database_url=bench.app_url,
        redis_url=redis_url,
        secret_key=SECRET_KEY,
        role=WorkerRole.EVENTS,
    )

    async def run() -> list[float]:
        async with client_of(config) as client:
            await _one_after_the_other(client, cardholders, warm_up_s)
            return await _one_after_the_other(client, cardholders, seconds)

    with worker(config):
        return asyncio.run(run())


async def _one_after_the_other(
    client: Client, cardholders: Sequence[Cardholder], seconds: float
) -> list[float]:
    waits: list[float] = []
    ended = perf_counter() + seconds
    while (began := perf_counter()) < ended:
        await client.submit([_authorization(cardholders, next(_NUMBERS))])
        waits.append((perf_counter() - began) * 1000)
    return waits


def _authorization(cardholders: Sequence[Cardholder], number: int) -> dict[str, Any]:
    return {
        "type": "AUTHORIZATION",
        "source": workload.SOURCE,
        "reference": f"without-redis-{number}",
        "issuerTransactionToken": f"without-redis-{number}",
        "cardId": f"Card:{cardholders[number % len(cardholders)].card_id}",
        "amount": 1,
        "currency": "USD",
    }


def _main(
    *, seconds: Annotated[float, typer.Option(help="Duration of each run.", min=1)] = 10.0
) -> None:
    """Measure the latency of an authorization with and without Redis."""
    with tempfile.TemporaryDirectory(prefix="cardledger-bench-") as directory:
        redis = find_redis(None, Path(directory))
        redis.start()
        try:
            with server(None) as postgres, bench(postgres) as made:
                found = measure(made, redis.url, seconds=seconds)
        finally:
            redis.stop()
    for latencies in found:
        print(latencies.line)


if __name__ == "__main__":
    typer.run(_main)
