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

    So each callback waits a millisecond for those that go on, however many they are. Those that
    begin have their first turn at once.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Measure turns by the seconds of `clock`."""
        self._clock: Final = clock
        self._next: Final = asyncio.Lock()  # Those that wait for it have it in their order.

    async def run(self, steps: Generator[None, None, Result], *, at_once: bool = True) -> Result:
        """Return what `steps` return.

        The first turn is `at_once`, so that a short computation does not wait; not so where `steps`
        are a part of a longer one.
        Raises: what `steps` raise.
        """
        try:
            if not at_once:
                await self._turn()
            while True:
                end = self._clock() + _TURN_S
                while self._clock() < end:
                    next(steps)
                await self._turn()
        except StopIteration as finished:
            result: Result = finished.value
            return result
        finally:
            steps.close()

    async def _turn(self) -> None:
        """Return in a later round of the event loop, in which no other computation has a turn."""
        async with self._next:
            await asyncio.sleep(0)
