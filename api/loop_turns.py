"""Long computations on the event loop, in turns between which requests go on.

A thread would be worse: it keeps the event loop waiting for the interpreter's lock, for five
milliseconds at each of its steps.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Final, TypeVar

_TURN_S: Final = 0.000_25
_FIRST_TURN_S: Final = 0.001
_SHORTEST_REST_S: Final = 0.001  # The event loop sleeps for whole milliseconds.
_LONGEST_REST_S: Final = 0.02
_RESTS: Final = 3  # Of a large request: times as long as it has worked.
_LONGEST_REST_OF_WRITES_S: Final = 0.3

Result = TypeVar("Result")


def at_once(steps: Generator[None, None, Result]) -> Result:
    """Return what `steps` return, which take less than a turn together.

    For where nothing may wait, as in a database transaction. Raises: what `steps` raise.
    """
    try:
        while True:
            next(steps)
    except StopIteration as finished:
        result: Result = finished.value
        return result


class LoopTurns:
    """The turns of all long computations of one event loop: it runs one turn between two rounds.

    So each callback waits a quarter of a millisecond for those that go on, however many they are:
    an authorization needs many rounds. Those that begin have their first turn at once.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        *,
        is_shared: Callable[[], bool] = lambda: False,
    ) -> None:
        """Measure turns by the seconds of `clock`; rest for as long as they take if `is_shared`."""
        self._clock: Final = clock
        self._is_shared: Final = is_shared
        self._since_rest_s = 0.0
        self._next: Final = asyncio.Lock()  # Those that wait for it have it in their order.

    async def run(self, steps: Generator[None, None, Result], *, at_once: bool = True) -> Result:
        """Return what `steps` return.

        The first turn is `at_once`, and longer, so that a short computation does not wait; not so
        where `steps` are a part of a longer one.
        Raises: what `steps` raise.
        """
        try:
            if not at_once:
                await self._turn()
            while True:
                began = self._clock()
                end = began + (_FIRST_TURN_S if at_once else _TURN_S)
                at_once = False
                while (now := self._clock()) < end:
                    next(steps)
                await self._turn(now - began)
        except StopIteration as finished:
            result: Result = finished.value
            return result
        finally:
            steps.close()

    async def rest(self, worked_s: float) -> None:
        """Rest three times as long as a part of a request took with its writes, if `is_shared`.

        For 300 ms at most. Its rows keep PostgreSQL and a worker busy as well: the busier they are,
        the longer its writes take.
        """
        if self._is_shared():
            await asyncio.sleep(min(_RESTS * worked_s, _LONGEST_REST_OF_WRITES_S))

    async def _turn(self, worked_s: float = 0.0) -> None:
        """Return in a later round of the event loop, in which no other computation has a turn."""
        async with self._next:
            self._since_rest_s += worked_s
            rest_s = self._since_rest_s if self._since_rest_s >= _SHORTEST_REST_S else 0.0
            if rest_s:
                self._since_rest_s = 0.0
            await asyncio.sleep(min(rest_s, _LONGEST_REST_S) if self._is_shared() else 0)
