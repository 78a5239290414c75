"""The table on the terminal, and the JSON from which the page in the docs is generated."""

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import psycopg
from rich.console import Console
from rich.text import Text

from benchmarks.results.figures import Figure
from cardledger import __version__
from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.engine.build import is_compiled

_SETTINGS: Final = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "autovacuum",
    "shared_buffers",
    "max_wal_size",
)
_TIMES: Final = 3  # From so many times the bar on, a percentage is hard to read.
_GIB: Final = 1 << 30


@dataclass(slots=True)
class Results:
    """The figures of a run, as far as it has come."""

    about: Mapping[str, Any] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    profile: str | None = None
    stopped_in: str | None = None
    """The part that did not end; None in a complete run."""

    @contextmanager
    def measuring(self, part: str) -> Iterator[None]:
        """Note how long `part` takes, and that it did not end if it raises."""
        started = perf_counter()
        self.stopped_in = part
        try:
            yield
            self.stopped_in = None
        finally:
            self.seconds[part] = round(perf_counter() - started, 1)


def about(postgres: DatabaseUrl, command: str, at: datetime) -> dict[str, Any]:
    """Return what was measured on, how and when: without it no figure means anything."""
    with psycopg.connect(postgres) as connection:
        settings = {name: _setting(connection, name) for name in _SETTINGS}
    return {
        "command": command,
        "at": at.isoformat(timespec="minutes"),
        "cardledger": __version__,
        "python": platform.python_version(),
        "rules": "compiled" if is_compiled() else "interpreted",
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB),
        # What the machine had to do before it began: a quiet one has next to nothing.
        "load": round(os.getloadavg()[0], 2),
        "postgres": settings,
    }


def _setting(connection: psycopg.Connection[Any], name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert row is not None
    return str(row[0])


def _processor() -> str:
    """Return what the processor calls itself, as far as that can be read."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def lines(figures: Sequence[Figure]) -> Iterator[Text]:
    """Yield the table: figure, median, spread, bar, and whether it holds."""
    width = max((len(figure.name) for figure in figures), default=0)
    bars = max((len(bar(figure)) for figure in figures), default=0)
    part = ""
    for figure in figures:
        if figure.part != part:
            part = figure.part
            yield Text()
            yield Text(f" {part}", style="bold")
        line = Text(f"   {figure.name:<{width}}  {shown(figure.median, figure.unit):>7}")
        line.append(f" {figure.unit:<5}  ")
        line.append(f"{spread(figure):<6}  ", style="dim")
        line.append(f"{bar(figure):<{bars}}  ")
        line.append(verdict(figure), style="green" if figure.holds else "red")
        line.rstrip()
        yield line


def show(out: Console, results: Results) -> None:
    """Print the table and what it was measured on."""
    for text in lines(results.figures):
        out.print(text)
    held = [figure.holds for figure in results.figures if figure.holds is not None]
    out.print()
    if results.stopped_in is not None:
        out.print(Text(f" INCOMPLETE: the run stopped in part {results.stopped_in}.", style="red"))
    out.print(f" {sum(held)} of {len(held)} bars hold. Medians of rounds, ± half their spread.")
    for line in place(results.about):
        out.print(f" {line}")
    out.print(f" {duration(results.seconds)}")


def place(where: Mapping[str, Any]) -> tuple[str, str]:
    """Return in words what was measured on: the machine, and the server."""
    postgres = where["postgres"]
    machine = (
        f"{where['processor']}, {where['cores']} cores, {where['memory_gib']} GiB,"
        f" {where['system']}, load {where['load']:g} before; Python {where['python']},"
        f" rules {where['rules']}"
    )
    version = postgres["server_version"].partition(" ")[0]
    settings = ", ".join(f"{name} {postgres[name]}" for name in _SETTINGS[1:])
    return machine, f"PostgreSQL {version}: {settings}"


def duration(seconds: Mapping[str, float]) -> str:
    """Return in words how long the parts took."""
    parts = ", ".join(f"{part} {took:.0f}" for part, took in seconds.items())
    return f"{sum(seconds.values()):.0f} s in all: {parts}"


def write(path: Path, results: Results) -> None:
    """Write `results` as JSON."""
    document = {
        "about": results.about,
        "stopped_in": results.stopped_in,
        "seconds": results.seconds,
        "figures": [figure.wire() for figure in results.figures],
        "profile": results.profile,
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def shown(value: float, unit: str) -> str:
    """Return `value` rounded to significant places."""
    if unit in {"ratio", "ms", "s"} and value < 1_000:
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,.0f}"


def spread(figure: Figure) -> str:
    """Return how far rounds were apart, to both sides of their middle; of one round nothing."""
    return f"± {figure.spread / 2:.0%}" if len(figure.values) > 1 else ""


def bar(figure: Figure) -> str:
    """Return what the figure is held to, and in brackets what we aim at."""
    if figure.least is None:
        return ""
    aim = "" if figure.aim is None else f" ({_round(figure.aim)})"
    return f"at {'most' if figure.lower else 'least'} {_round(figure.least)}{aim}"


def verdict(figure: Figure) -> str:
    """Return whether the bar holds, else by how much not."""
    if figure.least is None:
        return ""
    if figure.holds:
        return "ok, aim reached" if figure.reaches_aim else "ok"
    if not figure.least:
        return f"NOT REACHED, {_round(figure.median)} too many"
    part = figure.median / figure.least
    if part >= _TIMES:
        return f"NOT REACHED, {part:.0f} times as much"
    return f"NOT REACHED, {abs(part - 1):.0%} {'over' if figure.lower else 'short'}"


def _round(value: float) -> str:
    return f"{value:,g}" if value < 1_000 else f"{value:,.0f}"
