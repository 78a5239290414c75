"""Computations in steps, without an event loop."""

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def result_of(steps: Generator[None, None, Result]) -> Result:
    """Return what `steps` return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
