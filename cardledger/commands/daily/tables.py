"""Tables that fit the terminal; in a pipe, every column at its full width."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cardledger.commands.daily.arguments import printable

_GAP: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: `keep` columns are shown whole at any width, the last others are left out first."""

    name: str
    keep: bool = False
    is_number: bool = False


def show(
    out: Console,
    columns: Sequence[Column],
    rows: Sequence[Sequence[object]],
    *,
    elsewhere: str = "--json has them",
) -> None:
    """Print `rows` below the names of `columns`; say which have no room, and what has them."""
    lines = [[printable(cell) for cell in row] for row in rows]
    widths = [
        max(len(column.name), *(len(line[place]) for line in lines), 0)
        for place, column in enumerate(columns)
    ]
    shown = fitting(columns, widths, out.width if out.is_terminal else None)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for place in shown:
        column = columns[place]
        table.add_column(
            column.name,
            no_wrap=True,
            overflow="ellipsis",
            min_width=widths[place] if column.keep else None,
            justify="right" if column.is_number else "left",
        )
    for line in lines:
        table.add_row(*(Text(line[place]) for place in shown))
    if not out.is_terminal:
        out.width = _total(widths, shown)
    out.print(table, soft_wrap=False, crop=False)
    hidden = [column.name for place, column in enumerate(columns) if place not in shown]
    if hidden:
        text = f"no room for {', '.join(hidden)}; {elsewhere}"
        out.print(Text(text, style="dim"), soft_wrap=False)


def fitting(columns: Sequence[Column], widths: Sequence[int], width: int | None) -> list[int]:
    """Return the places of the columns that fit into `width`; None: there is no limit."""
    shown = list(range(len(columns)))
    if width is None:
        return shown
    for place in reversed(range(len(columns))):
        if _total(widths, shown) <= width:
            break
        if not columns[place].keep:
            shown.remove(place)
    return shown


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[place] + _GAP for place in shown) - _GAP
