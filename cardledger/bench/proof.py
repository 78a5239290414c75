"""How fast the books are proved: every event folded again, every entry booked again."""

from collections.abc import Iterator
from time import perf_counter
from typing import Final

from cardledger import verifying
from cardledger.bench import scene
from cardledger.bench.engine import Say
from cardledger.bench.figures import Figure
from cardledger.bench.workbench import Bench

_PART: Final = "proof"
_MILLION: Final = 1_000_000


def measure(bench: Bench, *, say: Say, events: int = 200_000) -> Iterator[Figure]:
    """Yield how long `verify` takes for a million events, from what `events` of them take."""
    say(f"verify, at least {events:,} events")
    holders = bench.holders(2_000)
    wanted = scene.purchases(holders, events // 4, seed=1, run="proof")
    for batch in scene.in_batches(wanted, 20_000):
        bench.accept(scene.authorizations(batch))
        bench.drain(threads=2)
        bench.accept(scene.clearings(batch))
        bench.drain(threads=2)
    started = perf_counter()
    report = verifying.books(bench.app_url)
    seconds = perf_counter() - started
    assert report.holds, "the books of the benchmark do not hold"
    yield Figure(
        part=_PART,
        name="verify, seconds a million events",
        unit="s",
        values=[seconds * _MILLION / report.events],
        least=60,
        aim=20,
        lower=True,
    )
