"""Long computations on the event loop, in turns between which requests go on.

A thread would be worse: it keeps the event loop waiting for the interpreter's lock, for five
milliseconds at each of its steps.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Final, TypeVar

_TURN_S: Final = 0.001

Result = TypeVar("Result")


class LoopTurns:
    """The turns of all long computations of one event loop: it runs one turn between two rounds.

    So each callback waits a millisecond for computations, however many there are.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Measure turns by the seconds of `clock`."""
        self._clock: Final = clock
        self._next: Final = asyncio.Lock()  # Those that wait for it have it in their order.

    async def run(self, steps: Generator[None, None, Result]) -> Result:
        """Return what `steps` return; the first turn is at once, so a short computation waits not.

        Raises: what `steps` raise.
        """
        try:
            while True:
                end = self._clock() + _TURN_S
                while self._clock() < end:
                    next(steps)
                async with self._next:
                    await asyncio.sleep(0)
        except StopIteration as finished:
            result: Result = finished.value
            return result
        finally:
            steps.close()
