"""Everything in one run, one table at the end, JSON when asked for."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks import report, workbench
from benchmarks.figures import Figure, find, ratio
from benchmarks.parts import engine, floor, growth, proof, service, smoke, webhooks
from benchmarks.parts.engine import Say
from cardledger.config import configuration, gc_tuning
from cardledger.config import console as terminal
from cardledger.config.errors import FAILURE, USAGE, CommandError
from cardledger.embedded.servers import DatabaseUrl
from cardledger.supervisor.signals import Signals


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to measure, and how long."""

    parts: Sequence[str]
    rounds: int = 3
    millions: float = 1.0
    json_file: Path | None = None
    profile: bool = False

    @property
    def command(self) -> str:
        """What somebody else types to measure the same."""
        said = ["python -m benchmarks"]
        if tuple(self.parts) != PARTS:
            said += [f"--part {part}" for part in self.parts]
        said += [f"--rounds {self.rounds}", f"--millions {self.millions:g}"]
        return " ".join([*said, "--profile"] if self.profile else said)


def run(asked: Asked) -> int:
    """Measure, then print; returns 1 when a bar does not hold."""
    _check(asked)
    settings = configuration.load(log_level="error")
    given = settings.database_url.get_secret_value() if settings.database_url else None
    out = terminal.console()
    say = _Clock()
    figures: list[Figure] = []
    seconds: dict[str, float] = {}
    gc_tuning.freeze()
    # However it is ended, what it made on somebody's server goes with it.
    with Signals().caught(), workbench.server(given) as postgres:
        about = report.about(postgres, asked.command, datetime.now(UTC))
        if given is None and asked.parts != ("smoke",):
            say("a new server: writing its log once round")
            workbench.run_in(postgres)
        for part in asked.parts:
            started = perf_counter()
            figures += _PARTS[part](postgres, asked, say)
            seconds[part] = round(perf_counter() - started, 1)
        profile = _profile(postgres, say) if asked.profile else None
    figures += _ratios(figures)
    report.show(out, figures, about, seconds)
    if asked.json_file is not None:
        report.write(asked.json_file, figures, about, seconds, profile)
    if profile is not None:
        out.print()
        out.print(profile)
    return FAILURE if any(figure.holds is False for figure in figures) else 0


def _check(asked: Asked) -> None:
    """Complain now about what would else be found out after minutes.

    Raises: CommandError.
    """
    if unknown := [part for part in asked.parts if part not in _PARTS]:
        raise CommandError(
            f"no part is called {unknown[0]}; there are {', '.join(_PARTS)}", code=USAGE
        )
    file = asked.json_file
    if file is not None and not (file.parent.is_dir() and os.access(file.parent, os.W_OK)):
        raise CommandError(f"cannot write {file}: no directory to write in", code=USAGE)
    if file is not None and file.is_dir():
        raise CommandError(f"cannot write {file}: it is a directory", code=USAGE)


class _Clock:
    """Says on standard error what happens, and since when; the table is standard output's."""

    def __init__(self) -> None:
        self._started: Final = perf_counter()

    def __call__(self, said: str) -> None:
        print(f"{perf_counter() - self._started:5.0f} s  {said}", file=sys.stderr, flush=True)


_Part = Callable[[DatabaseUrl, Asked, Say], Iterator[Figure]]


def _floor(postgres: DatabaseUrl, asked: Asked, say: Say) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench:
        yield from floor.measure(bench, rounds=asked.rounds, say=say)


def _engine(postgres: DatabaseUrl, asked: Asked, say: Say) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench:
        yield from engine.measure(bench, rounds=asked.rounds, say=say)


def _service(postgres: DatabaseUrl, asked: Asked, say: Say) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench, service.service(bench) as running:
        yield from service.measure(running, rounds=asked.rounds, say=say)


def _webhooks(postgres: DatabaseUrl, asked: Asked, say: Say) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench, service.service(bench) as running:
        yield from webhooks.measure(running, rounds=asked.rounds, say=say)


def _proof(postgres: DatabaseUrl, asked: Asked, say: Say) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench:
        yield from proof.measure(bench, rounds=asked.rounds, say=say)


def _growth(postgres: DatabaseUrl, asked: Asked, say: Say) -> Iterator[Figure]:
    # A ratio of two rates is as uncertain as both together.
    rounds = 2 * asked.rounds
    yield from growth.measure(postgres, millions=asked.millions, rounds=rounds, say=say)


def _smoke(postgres: DatabaseUrl, asked: Asked, say: Say) -> Iterator[Figure]:
    with workbench.bench(postgres) as bench:
        yield from smoke.measure(bench, rounds=asked.rounds, say=say)


_PARTS: Final[dict[str, _Part]] = {
    "floor": _floor,
    "engine": _engine,
    "service": _service,
    "webhooks": _webhooks,
    "proof": _proof,
    "growth": _growth,
    "smoke": _smoke,
}
PARTS: Final = tuple(part for part in _PARTS if part != "smoke")
"""What is measured when nobody says what, in the order of the table; all but CI's own part."""


def _profile(postgres: DatabaseUrl, say: Say) -> str:
    with workbench.bench(postgres) as bench:
        return engine.profile(bench, say=say)


def _ratios(figures: Sequence[Figure]) -> Iterator[Figure]:
    """Yield how the engine compares to what the server can do at all."""
    ours = find(figures, engine.AUTHORIZATIONS)
    copy = find(figures, floor.COPY)
    tpc_b = find(figures, floor.TPC_B)
    if ours and copy:
        name = "authorizations to COPY of the same rows"
        yield ratio(name, ours, copy, part="ratios", least=0.4, aim=0.6)
    if ours and tpc_b:
        name = "authorizations to pgbench TPC-B-like"
        yield ratio(name, ours, tpc_b, part="ratios", least=4, aim=8)
