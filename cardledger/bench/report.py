"""The table that a person reads, the JSON that a machine keeps, the charts of the docs."""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg
from rich.console import Console
from rich.text import Text

from cardledger import __version__
from cardledger.bench.figures import Figure
from cardledger.servers import DatabaseUrl

_NAME: Final = 58
_VALUE: Final = 12


def machine(postgres: DatabaseUrl) -> dict[str, Any]:
    """Return what it was measured on: without it no figure means anything."""
    with psycopg.connect(postgres) as connection:
        settings = {
            name: _setting(connection, name)
            for name in ("server_version", "fsync", "synchronous_commit", "full_page_writes")
        }
    return {
        "cardledger": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "postgres": settings,
    }


def _setting(connection: psycopg.Connection[Any], name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert row is not None
    return str(row[0])


def lines(figures: Iterable[Figure]) -> Iterable[Text]:
    """Yield the table: figure, median, spread, bar."""
    part = ""
    for figure in figures:
        if figure.part != part:
            part = figure.part
            yield Text()
            yield Text(f" {part}", style="bold")
        yield line(figure)


def line(figure: Figure) -> Text:
    """Return one line of the table."""
    said = Text(f" {figure.name:<{_NAME}}")
    said.append(f"{_shown(figure.median, figure.unit):>{_VALUE}} {figure.unit:<6}")
    said.append(f"±{figure.spread / 2:>4.0%}" if len(figure.values) > 1 else "     ", style="dim")
    if figure.least is not None:
        word = "at most" if figure.lower else "at least"
        bar = f"  {word} {_shown(figure.least, figure.unit)}"
        mark = "ok" if figure.holds else "NOT REACHED"
        said.append(f"{bar:<22}")
        said.append(f" {mark}", style="green" if figure.holds else "red")
        if figure.reaches_aim:
            said.append(", aim reached", style="green")
    return said


def show(out: Console, figures: Sequence[Figure], where: dict[str, Any]) -> None:
    """Print the table."""
    for text in lines(figures):
        out.print(text)
    held = [figure for figure in figures if figure.holds is not None]
    missed = [figure for figure in held if not figure.holds]
    out.print()
    out.print(
        f" {len(held) - len(missed)} of {len(held)} bars hold."
        f" PostgreSQL {where['postgres']['server_version']}, Python {where['python']},"
        f" {where['cores']} cores, fsync {where['postgres']['fsync']},"
        f" synchronous_commit {where['postgres']['synchronous_commit']}"
    )


def write(path: Path, figures: Sequence[Figure], where: dict[str, Any]) -> None:
    """Write all figures as JSON."""
    whole = {"machine": where, "figures": [figure.wire() for figure in figures]}
    path.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def _shown(value: float, unit: str) -> str:
    if unit in {"ratio", "ms", "s"} and value < 1_000:  # noqa: PLR2004 - then decimals say nothing
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"  # noqa: PLR2004 - as above
    return f"{value:,.0f}"
