"""Output whose reader may leave: `cardledger transactions --json | head`."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typing_extensions import override

BROKEN_PIPE: Final = 141
"""The exit code of a process that SIGPIPE has ended, as a shell shows it."""


class Commands(TyperGroup):
    """Commands that end with `BROKEN_PIPE` once nothing reads their output; Click ends with 1."""

    @override
    def invoke(self, ctx: Any) -> Any:
        with ending_with_reader():
            return super().invoke(ctx)


@contextmanager
def ending_with_reader() -> Iterator[None]:
    """End the command with `BROKEN_PIPE` when the reader of standard output has closed it."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        raise typer.Exit(BROKEN_PIPE) from None


def discard_output() -> None:
    """Write to nowhere what standard output still has, or Python reports its error at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
