"""`python -m benchmarks.overload`: goodput at and above the capacity.

One worker process decides authorizations that one client submits, each with a deadline. Capacity
is what they decide when the client waits for each decision before it asks for the next. Then it
asks at a fixed rate, whatever comes back: once, twice and three times the capacity. Goodput is
the number of decisions that reached the caller before their deadline, over the capacity.
"""

import asyncio
import multiprocessing
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from secrets import token_hex
from time import perf_counter
from typing import Annotated, Any, Final

import typer

from benchmarks import workload
from benchmarks.workbench import Bench, bench, server
from benchmarks.workload import Cardholder
from cardledger.embedded.servers import find_redis
from cardledger.ledger.storage.engines import async_engine
from cardledger.schema.wire.outcomes import OutcomeType
from cardledger.workers.client import (
    Client,
    OverloadedError,
    ReplyTimeoutError,
    UnavailableError,
)
from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.process.main import run
from cardledger.workers.signals.roles import WorkerRole

_CARDHOLDERS: Final = 1_000
_WARM_UP_S: Final = 3.0  # Until the worker has started and has its plans.
_CONCURRENT: Final = 200  # Authorizations at once while the capacity is measured.
_FACTORS: Final = (1, 2, 3)
_REPLY_TIMEOUT_S: Final = 60.0
_TICK_S: Final = 0.005


@dataclass(slots=True)
class Load:
    """What became of the authorizations of one run."""

    asked: int = 0
    in_time: int = 0
    late: int = 0  # Also those whose decline says that the decision took too long.
    refused: int = 0


class Overload:
    """Submits authorizations of `cardholders`, each with a deadline `deadline_s` from then."""

    def __init__(self, client: Client, cardholders: list[Cardholder], deadline_s: float) -> None:
        self._client: Final = client
        self._cardholders: Final = cardholders
        self._deadline: Final = timedelta(seconds=deadline_s)
        self._numbers: Final = count()

    async def capacity(self, seconds: float) -> float:
        """Return how many authorizations are decided a second, with `_CONCURRENT` at once."""
        decided = 0
        started = perf_counter()

        async def ask_on() -> None:
            nonlocal decided
            while perf_counter() - started < seconds:
                await self._client.submit([self._authorization()])
                decided += 1

        await asyncio.gather(*(ask_on() for _ in range(_CONCURRENT)))
        return decided / (perf_counter() - started)

    async def paced(self, rate: float, seconds: float) -> Load:
        """Ask `rate` times a second for `seconds`, and wait for what is still on its way."""
        load = Load()
        started = perf_counter()
        tasks: set[asyncio.Task[None]] = set()
        while (elapsed := perf_counter() - started) < seconds:
            while load.asked < elapsed * rate:
                load.asked += 1
                task = asyncio.create_task(self._ask(load))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(_TICK_S)
        await asyncio.gather(*tasks)
        return load

    async def _ask(self, load: Load) -> None:
        deadline = datetime.now(UTC) + self._deadline
        authorization = self._authorization() | {"decideBy": deadline.isoformat()}
        try:
            [outcome] = await self._client.submit([authorization])
        except OverloadedError:
            load.refused += 1
            return
        except (ReplyTimeoutError, UnavailableError):
            load.late += 1
            return
        if datetime.now(UTC) <= deadline and outcome.outcome is OutcomeType.APPLIED:
            load.in_time += 1  # Every cardholder has funds: a decline is for lack of time.
        else:
            load.late += 1

    def _authorization(self) -> dict[str, Any]:
        number = next(self._numbers)
        cardholder = self._cardholders[number % len(self._cardholders)]
        return {
            "type": "AUTHORIZATION",
            "source": workload.SOURCE,
            "reference": f"overload-{number}",
            "issuerTransactionToken": f"overload-{number}",
            "cardId": f"Card:{cardholder.card_id}",
            "amount": 100,
            "currency": "USD",
        }


@contextmanager
def worker(config: WorkerConfig) -> Iterator[None]:
    """Run a worker process with `config`."""
    process = multiprocessing.get_context("spawn").Process(target=run, args=(config,))
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


@asynccontextmanager
async def client_of(config: WorkerConfig) -> AsyncIterator[Client]:
    """Yield a client of the worker of `config`."""
    engine = async_engine(config.database_url, keyed=True)
    try:
        async with Client(
            engine,
            config.redis_url,
            secret_key=config.secret_key,
            reply_timeout_s=_REPLY_TIMEOUT_S,
        ) as client:
            yield client
    finally:
        await engine.dispose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The load of one run, and how much of the capacity was of use."""

    factor: int
    load: Load
    goodput: float


def measure(
    bench: Bench,
    redis_url: str,
    *,
    seconds: float,
    deadline_s: float,
    factors: Sequence[int] = _FACTORS,
) -> tuple[float, list[Measured]]:
    """Return the capacity, in decisions a second, and a run at each of `factors` times of it."""
    cardholders = bench.cardholders(_CARDHOLDERS)
    config = WorkerConfig(
        database_url=bench.app_url,
        redis_url=redis_url,
        secret_key=token_hex(32),
        role=WorkerRole.EVENTS,
    )

    async def run_all() -> tuple[float, list[Measured]]:
        async with client_of(config) as client:
            overload = Overload(client, cardholders, deadline_s)
            await overload.capacity(_WARM_UP_S)
            capacity = await overload.capacity(seconds)
            runs = []
            for factor in factors:
                load = await overload.paced(factor * capacity, seconds)
                goodput = load.in_time / seconds / capacity
                runs.append(Measured(factor=factor, load=load, goodput=goodput))
            return capacity, runs

    with worker(config):
        return asyncio.run(run_all())


def _main(
    *,
    seconds: Annotated[float, typer.Option(help="Duration of each run.", min=1)] = 10.0,
    deadline: Annotated[float, typer.Option(help="Seconds until `decideBy`.", min=0.1)] = 2.0,
) -> None:
    """Measure the goodput of authorizations at once, twice and three times the capacity."""
    with tempfile.TemporaryDirectory(prefix="cardledger-bench-") as directory:
        redis = find_redis(None, Path(directory))
        redis.start()
        try:
            with server(None) as postgres, bench(postgres) as made:
                capacity, runs = measure(made, redis.url, seconds=seconds, deadline_s=deadline)
        finally:
            redis.stop()
    print(f"capacity: {capacity:,.0f} decisions a second")
    for measured in runs:
        load = measured.load
        print(
            f"{measured.factor} x capacity: goodput {measured.goodput:.2f}; of {load.asked:,} asked"
            f" {load.in_time:,} in time, {load.late:,} late, {load.refused:,} refused"
        )


if __name__ == "__main__":
    typer.run(_main)
