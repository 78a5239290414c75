"""How many authorizations and clearings the engine commits a second."""

import cProfile
import io
import multiprocessing
import pstats
import signal
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final

from benchmarks import workload
from benchmarks.results.figures import Figure
from benchmarks.workbench import Bench, Drained
from benchmarks.workload import Cardholder, CardTransactionKey
from cardledger.ledger.messaging import inbox

BATCH_SIZES: Final = (1, 8, 32, 128, 500, 2_000)
_PART: Final = "engine"
CARDHOLDERS: Final = 4_000  # More than a batch has messages, so that few share an account.
_PER_BATCH_SIZE: Final = {1: 400, 8: 1_600, 32: 4_800, 128: 8_000, 500: 16_000, 2_000: 16_000}
THREADS: Final = 2  # As a worker has: one computes while the other waits for PostgreSQL.
_PROCESSES: Final = 2
_HOTTEST: Final = 25

AUTHORIZATIONS: Final = "authorizations, batches of 500"

Progress = Callable[[str], None]


def measure(bench: Bench, *, rounds: int, progress: Progress) -> Iterator[Figure]:
    """Yield the rates by batch size, on many accounts and on one."""
    spread = bench.cardholders(CARDHOLDERS)
    hot = bench.cardholders(1)
    for size in BATCH_SIZES:
        progress(f"engine: batches of {size:,}")
        yield from _rates(bench, spread, size, rounds=rounds)
    progress("engine: one hot account")
    yield from _rates(bench, hot, 500, rounds=rounds, threads=1, named=", one hot account")
    progress(f"engine: {_PROCESSES} processes")
    yield several(bench, spread, rounds=rounds)


def _rates(  # noqa: PLR0913 - what distinguishes the lines of the table
    bench: Bench,
    cardholders: list[Cardholder],
    size: int,
    *,
    rounds: int,
    threads: int = THREADS,
    named: str = "",
) -> Iterator[Figure]:
    count = _PER_BATCH_SIZE[size]
    authorizations, clearings, accepted = [], [], []
    for number in range(rounds + 1):
        wanted = workload.purchases(cardholders, count, seed=number, run=f"{size}{named}")
        first, seconds = _authorize(bench, wanted, size, threads)
        bench.accept(workload.clearings(wanted))
        second = bench.drain(batch_size=size, threads=threads)
        if number:  # The first round warms caches and plans.
            authorizations.append(first.rate)
            clearings.append(second.rate)
            accepted.append(first.messages / (seconds + first.seconds))
    batch = f"batches of {size:,}{named}"
    is_bar = size == 500
    yield Figure(
        part=_PART,
        name=f"authorizations, {batch}",
        unit="/s",
        values=authorizations,
        least=(12_000 if named else 15_000) if is_bar else None,
        aim=25_000 if is_bar else None,
    )
    yield Figure(
        part=_PART,
        name=f"clearings, {batch}",
        unit="/s",
        values=clearings,
        least=10_000 if is_bar and not named else None,
        aim=20_000 if is_bar and not named else None,
    )
    if is_bar and not named:
        yield Figure(
            part=_PART, name="authorizations, enqueued and decided in turn", unit="/s",
            values=accepted,
        )  # fmt: skip


def _authorize(
    bench: Bench, wanted: list[CardTransactionKey], size: int, threads: int
) -> tuple[Drained, float]:
    seconds = bench.accept(workload.authorizations(wanted))
    return bench.drain(batch_size=size, threads=threads), seconds


def several(
    bench: Bench,
    cardholders: list[Cardholder],
    *,
    rounds: int,
    count: int = _PER_BATCH_SIZE[2_000],
) -> Figure:
    """Return the rate of several processes, each on queues of its own, over `count` messages."""
    values = []
    context = multiprocessing.get_context("spawn")
    # Ctrl-C reaches them too, and it is for this process to end them.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with context.Pool(_PROCESSES, signal.signal, ignore) as pool:
        for number in range(rounds + 1):
            wanted = workload.purchases(cardholders, count, seed=number, run="several")
            bench.accept(workload.authorizations(wanted))
            shards = [range(first, inbox.SHARDS, _PROCESSES) for first in range(_PROCESSES)]
            started = perf_counter()
            decided = pool.starmap(_drain_shards, [(bench, list(own)) for own in shards])
            assert sum(decided) == count, f"{sum(decided)} of {count} decided"
            if number:
                values.append(sum(decided) / (perf_counter() - started))
    return Figure(
        part=_PART, name=f"authorizations, batches of 500, {_PROCESSES} processes", unit="/s",
        values=values,
    )  # fmt: skip


def _drain_shards(bench: Bench, shards: list[int]) -> int:
    return bench.drain(threads=1, only=shards).messages


def profile(bench: Bench, *, progress: Progress) -> str:
    """Return where the processor's time goes while batches of 500 are decided by one thread.

    The profiler counts calls, which makes them dearer than they are: the order says more than the
    seconds.
    """
    progress("profile: authorizations, batches of 500")
    cardholders = bench.cardholders(CARDHOLDERS)
    measured = cProfile.Profile()
    for number in range(2):
        wanted = workload.purchases(cardholders, _PER_BATCH_SIZE[500], seed=number, run="profile")
        bench.accept(workload.authorizations(wanted))
        if number:  # The first round warms caches and plans.
            bench.drain_here(measured.runcall)
        else:
            bench.drain()
    printed = io.StringIO()
    pstats.Stats(measured, stream=printed).strip_dirs().sort_stats("tottime").print_stats(_HOTTEST)
    return printed.getvalue().strip()
