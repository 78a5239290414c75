"""Everything in one run, one table at the end, JSON on request."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks import workbench
from benchmarks.parts import (
    closing,
    console,
    engine,
    finance,
    floor,
    growth,
    ingestion,
    proof,
    service,
    smoke,
    webhooks,
)
from benchmarks.parts.engine import Progress
from benchmarks.results import report
from benchmarks.results.figures import Figure, find, ratio
from benchmarks.results.report import Results
from cardledger.config import configuration, gc_tuning
from cardledger.config import console as terminal
from cardledger.config.errors import FAILURE, USAGE, CommandError
from cardledger.embedded.servers import DatabaseUrl
from cardledger.supervisor.signals import Signals

INTERRUPTED: Final = 130
"""The exit code of an interrupted run, as shells have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure, and how long."""

    parts: Sequence[str]
    rounds: int = 3
    millions: float = 1.0
    json_file: Path | None = None
    profile: bool = False

    @property
    def command(self) -> str:
        """The command line that measures the same."""
        words = ["python -m benchmarks"]
        if tuple(self.parts) != PARTS:
            words += [f"--part {part}" for part in self.parts]
        words += [f"--rounds {self.rounds}", f"--millions {self.millions:g}"]
        return " ".join([*words, "--profile"] if self.profile else words)


def run(options: Options) -> int:
    """Measure, then print and write the figures; returns 1 when a bar does not hold.

    An interrupted or failed run prints and writes the figures that it has, marked as incomplete.
    """
    _check(options)
    settings = configuration.load(log_level="error")
    given = settings.database_url.get_secret_value() if settings.database_url else None
    results = Results()
    try:
        _measure(options, given, results)
    except KeyboardInterrupt:
        _report(options, results)
        return INTERRUPTED
    except Exception:
        _report(options, results)
        raise
    _report(options, results)
    return FAILURE if any(figure.holds is False for figure in results.figures) else 0


def _measure(options: Options, given: str | None, results: Results) -> None:
    """Add every figure to `results` as soon as it is measured."""
    progress = _Clock()
    gc_tuning.freeze()
    # However the run ends, its databases and roles on a given server are dropped.
    with Signals().caught(), workbench.server(given) as postgres:
        results.about = report.about(postgres, options.command, datetime.now(UTC))
        if given is None and options.parts != ("smoke",):
            progress("a new server: filling its write-ahead log once")
            workbench.fill_wal(postgres)
        for part in options.parts:
            with results.measuring(part):
                for figure in _PARTS[part](postgres, options, progress):
                    results.figures.append(figure)
        if options.profile:
            with results.measuring("profile"):
                results.profile = _profile(postgres, progress)


def _report(options: Options, results: Results) -> None:
    """Print and write `results`; nothing where there are none."""
    if not results.figures:
        return
    results.figures += _ratios(results.figures)
    out = terminal.console()
    report.show(out, results)
    if options.json_file is not None:
        report.write(options.json_file, results)
    if results.profile is not None:
        out.print()
        out.print(results.profile)


def _check(options: Options) -> None:
    """Reject now what would otherwise fail after minutes.

    Raises: CommandError.
    """
    if unknown := [part for part in options.parts if part not in _PARTS]:
        raise CommandError(f"unknown part {unknown[0]}; parts are {', '.join(_PARTS)}", code=USAGE)
    file = options.json_file
    if file is not None and not (file.parent.is_dir() and os.access(file.parent, os.W_OK)):
        raise CommandError(f"cannot write {file}: no directory to write in", code=USAGE)
    if file is not None and file.is_dir():
        raise CommandError(f"cannot write {file}: it is a directory", code=USAGE)


class _Clock:
    """Logs progress and elapsed time to standard error; the table is for standard output."""

    def __init__(self) -> None:
        self._started: Final = perf_counter()

    def __call__(self, step: str) -> None:
        print(f"{perf_counter() - self._started:5.0f} s  {step}", file=sys.stderr, flush=True)


_Part = Callable[[DatabaseUrl, Options, Progress], Iterator[Figure]]


def _floor(postgres: DatabaseUrl, options: Options, progress: Progress) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench:
        yield from floor.measure(bench, rounds=options.rounds, progress=progress)


def _engine(postgres: DatabaseUrl, options: Options, progress: Progress) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench:
        yield from engine.measure(bench, rounds=options.rounds, progress=progress)


def _service(postgres: DatabaseUrl, options: Options, progress: Progress) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench, service.service(bench) as running:
        yield from service.measure(running, rounds=options.rounds, progress=progress)


def _ingestion(postgres: DatabaseUrl, options: Options, progress: Progress) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench, service.service(bench) as running:
        yield from ingestion.measure(running, rounds=options.rounds, progress=progress)


def _webhooks(postgres: DatabaseUrl, options: Options, progress: Progress) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench, service.service(bench) as running:
        yield from webhooks.measure(running, rounds=options.rounds, progress=progress)


def _proof(postgres: DatabaseUrl, options: Options, progress: Progress) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench:
        yield from proof.measure(bench, rounds=options.rounds, progress=progress)


def _finance(postgres: DatabaseUrl, options: Options, progress: Progress) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench:
        entries = round(options.millions * 1_000_000)
        yield from finance.measure(bench, rounds=options.rounds, progress=progress, entries=entries)


def _closing(postgres: DatabaseUrl, options: Options, progress: Progress) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench:
        entries = round(options.millions * 1_000_000)
        yield from closing.measure(bench, entries=entries, rounds=options.rounds, progress=progress)


def _console(postgres: DatabaseUrl, options: Options, progress: Progress) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench, service.service(bench) as running:
        events = round(options.millions * 1_000_000)
        yield from console.measure(running, events=events, rounds=options.rounds, progress=progress)


def _growth(postgres: DatabaseUrl, options: Options, progress: Progress) -> Iterator[Figure]:
    # A ratio of two rates is as uncertain as both together.
    rounds = 2 * options.rounds
    yield from growth.measure(postgres, millions=options.millions, rounds=rounds, progress=progress)


def _smoke(postgres: DatabaseUrl, options: Options, progress: Progress) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench:
        yield from smoke.measure(bench, rounds=options.rounds, progress=progress)


_PARTS: Final[dict[str, _Part]] = {
    "floor": _floor,
    "engine": _engine,
    "service": _service,
    "ingestion": _ingestion,
    "webhooks": _webhooks,
    "proof": _proof,
    "finance": _finance,
    "closing": _closing,
    "growth": _growth,
    "console": _console,
    "smoke": _smoke,
}
PARTS: Final = tuple(part for part in _PARTS if part != "smoke")
"""The parts of a default run, in the order of the table; all but the one for CI."""


def _profile(postgres: DatabaseUrl, progress: Progress) -> str:
    with workbench.bench(postgres) as bench:
        return engine.profile(bench, progress=progress)


def _ratios(figures: Sequence[Figure]) -> Iterator[Figure]:
    """Yield the engine's rates relative to those of PostgreSQL alone."""
    ours = find(figures, engine.AUTHORIZATIONS)
    copy = find(figures, floor.COPY)
    tpc_b = find(figures, floor.TPC_B)
    if ours and copy:
        name = "authorizations to COPY of the same rows"
        yield ratio(name, ours, copy, part="ratios", least=0.4, aim=0.6)
    if ours and tpc_b:
        name = "authorizations to pgbench TPC-B-like"
        yield ratio(name, ours, tpc_b, part="ratios", least=4, aim=8)
