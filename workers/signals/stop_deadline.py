"""A time limit that all parts of a process share while it stops."""

from collections.abc import Callable, Sequence
from threading import Thread
from time import monotonic
from typing import Final

_LEAST_S: Final = 0.1  # What a part gets when others have used up the time: most end at once.


class StopDeadline:
    """Counts from its creation."""

    def __init__(self, limit_s: float) -> None:
        """Give all parts together `limit_s` seconds."""
        self._at: Final = monotonic() + limit_s

    @property
    def left_s(self) -> float:
        """What is left, at least a tenth of a second."""
        return max(_LEAST_S, self._at - monotonic())

    def run(self, work: Callable[[], object], *, reserve_s: float = 0.0) -> bool:
        """Run `work` in a thread; return whether it ended, with `reserve_s` left for others.

        Otherwise the thread goes on, and ends with the process.
        """
        thread = _started(work)
        thread.join(max(_LEAST_S, self.left_s - reserve_s))
        return not thread.is_alive()

    def run_together(self, works: Sequence[Callable[[], object]]) -> None:
        """Run `works` at the same time, so that none takes time from another."""
        for thread in [_started(work) for work in works]:
            thread.join(self.left_s)


def _started(work: Callable[[], object]) -> Thread:
    thread = Thread(target=work, name="stopping", daemon=True)
    thread.start()
    return thread
