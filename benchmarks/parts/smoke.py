"""A few seconds for CI: ratios within one run, with bars at about half of the usual value.

What is compared is measured in turn, round by round, so that a machine with other work is slow for
both. Rates are not held to anything: they are the machine's.
"""

from collections.abc import Iterator
from typing import Final

import psycopg

from benchmarks import workload
from benchmarks.parts import engine, floor
from benchmarks.parts.engine import Progress
from benchmarks.results.figures import Figure
from benchmarks.workbench import Bench
from benchmarks.workload import Cardholder

_PART: Final = "smoke"
_COUNT: Final = 4_000
_ALONE: Final = 100
_TO_COPY: Final = "authorizations, batches of 500, to COPY of the same rows"
_TO_SINGLE: Final = "authorizations, batches of 500, to batches of 1"
_CLEARINGS: Final = "clearings to authorizations, batches of 500"
# About half of what was seen on two cores, busy and idle.
_LEAST: Final = {_TO_COPY: 0.1, _TO_SINGLE: 3.0, _CLEARINGS: 0.4}


def measure(bench: Bench, *, rounds: int, progress: Progress) -> Iterator[Figure]:
    """Yield ratios, one value a round."""
    ratios: dict[str, list[float]] = {name: [] for name in _LEAST}
    with psycopg.connect(bench.owner_url) as connection:
        progress("smoke: the rows of authorizations")
        twins = floor.Twins(connection, floor.decided_rows(bench, connection, count=_COUNT))
        cardholders = bench.cardholders(engine.CARDHOLDERS)
        for number in range(rounds + 1):
            progress(f"smoke: round {number} of {rounds}")
            copied = twins.append()
            authorized, cleared = _rates(bench, cardholders, number, count=_COUNT, size=floor.BATCH)
            alone, _ = _rates(bench, cardholders, number, count=_ALONE, size=1)
            if number:  # The first round warms caches and plans.
                ratios[_TO_COPY].append(authorized / copied)
                ratios[_TO_SINGLE].append(authorized / alone)
                ratios[_CLEARINGS].append(cleared / authorized)
    for name, values in ratios.items():
        yield Figure(part=_PART, name=name, unit="ratio", values=values, least=_LEAST[name])


def _rates(
    bench: Bench, cardholders: list[Cardholder], number: int, *, count: int, size: int
) -> tuple[float, float]:
    wanted = workload.purchases(cardholders, count, seed=number, run=f"smoke-{size}")
    bench.accept(workload.authorizations(wanted))
    authorized = bench.drain(batch_size=size)
    bench.accept(workload.clearings(wanted))
    return authorized.rate, bench.drain(batch_size=size).rate
