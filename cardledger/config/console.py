"""What commands say to people: styled on a terminal, plain text elsewhere, never cut.

Lines are laid out here and not by Rich, so that a pipe gets the same text without the colours.
"""

import os
import sys
from typing import IO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text
from typing_extensions import override


def console(stream: IO[str] | None = None) -> Console:
    """Return a console for `stream` (standard output), without colours when it is no terminal."""
    stream = sys.stdout if stream is None else stream
    is_terminal = stream.isatty()
    return _Console(
        file=stream,
        force_terminal=is_terminal,
        color_system="auto" if is_terminal else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,  # What does not fit is the terminal's business; nothing is cut.
        legacy_windows=False,
        no_color="NO_COLOR" in os.environ,
    )


def progress(on: Console, *, unit: str) -> Progress:
    """Return a progress bar that goes away when it is done; nothing where there is no terminal."""
    return Progress(
        TextColumn(" {task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        _Rate(unit),
        TimeElapsedColumn(),
        console=on,
        transient=True,
        disable=not on.is_terminal,
    )


class _Console(Console):
    @override
    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError again, for `pipes`; Rich would exit with 1."""
        raise  # noqa: PLE0704 - Rich calls it where it handles the error.


class _Rate(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    @override
    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        return Text(f"{rate:,.0f} {self._unit}/s" if rate else "", style="cyan")


def arrow() -> str:
    """Return an arrow that standard output can show."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        "→".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return "->"
    return "→"


def decimal(minor: int, decimals: int = 2) -> str:
    """Return minor units as people write them: 1250 is 12.50."""
    sign, digits = "-" if minor < 0 else "", str(abs(minor)).rjust(decimals + 1, "0")
    whole, fraction = (digits[:-decimals], digits[-decimals:]) if decimals else (digits, "")
    return f"{sign}{int(whole):,}{'.' + fraction if fraction else ''}"
