"""`cardledger bench`: everything in one run, one table, JSON when asked for."""

import cProfile
import pstats
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cardledger import collector, configuration, terminal
from cardledger.bench import engine, floor, growth, proof, report, service, workbench
from cardledger.bench.figures import Figure, find, ratio
from cardledger.errors import FAILURE
from cardledger.servers import DatabaseUrl

PARTS: Final = ("floor", "engine", "service", "proof", "growth")
_HOTTEST: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to measure, and how long."""

    parts: Sequence[str] = PARTS
    rounds: int = 3
    millions: float = 1.0
    json_file: Path | None = None
    profile: bool = False


def run(asked: Asked) -> int:
    """Measure and print; returns 1 when a bar does not hold."""
    settings = configuration.load(log_level="error")
    out = terminal.console()
    collector.calm()
    given = settings.database_url.get_secret_value() if settings.database_url else None
    figures: list[Figure] = []
    with workbench.server(given) as postgres:
        where = report.machine(postgres)
        for part in asked.parts:
            with _Profiled(asked.profile and part == "engine"):
                for figure in _measure(part, postgres, asked, lambda said: out.print(f" {said} …")):
                    figures.append(figure)
                    out.print(report.line(figure))
    figures += _ratios(figures)
    report.show(out, figures, where)
    if asked.json_file is not None:
        report.write(asked.json_file, figures, where)
    return FAILURE if any(figure.holds is False for figure in figures) else 0


def _measure(
    part: str, postgres: DatabaseUrl, asked: Asked, say: Callable[[str], Any]
) -> Iterator[Figure]:
    """Measure one part on a database of its own."""
    with workbench.bench(postgres) as bench:
        match part:
            case "floor":
                yield from floor.measure(bench, rounds=asked.rounds, say=say)
            case "engine":
                yield from engine.measure(bench, rounds=asked.rounds, say=say)
            case "service":
                with service.service(bench) as running:
                    yield from service.measure(running, rounds=asked.rounds, say=say)
            case "proof":
                yield from proof.measure(bench, say=say)
            case _:
                yield from growth.measure(
                    bench, millions=asked.millions, rounds=asked.rounds, say=say
                )


def _ratios(figures: Sequence[Figure]) -> Iterator[Figure]:
    """Yield how the engine compares to what the server can do at all."""
    ours = find(figures, "authorizations, batches of 500")
    copy = find(figures, floor.COPY)
    tpc_b = find(figures, floor.TPC_B)
    if ours and copy:
        name = "authorizations to COPY of the same rows"
        yield ratio(name, ours, copy, part="ratios", least=0.4, aim=0.6)
    if ours and tpc_b:
        name = "authorizations to pgbench TPC-B-like"
        yield ratio(name, ours, tpc_b, part="ratios", least=4, aim=8)


class _Profiled:
    """Print where the processor's time went in the block, this thread's, if `wanted`."""

    def __init__(self, wanted: bool) -> None:  # noqa: FBT001 - its one parameter
        self._profile: Final = cProfile.Profile() if wanted else None

    def __enter__(self) -> None:
        if self._profile is not None:
            self._profile.enable()

    def __exit__(self, *_: object) -> None:
        if self._profile is not None:
            self._profile.disable()
            pstats.Stats(self._profile).sort_stats("tottime").print_stats(_HOTTEST)
