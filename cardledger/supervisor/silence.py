"""How long a child process has been silent, measured by its parent."""

from collections.abc import Callable
from time import monotonic
from typing import Final

LIMIT_S: Final = 2.0
"""A child that is silent for so long is frozen: killed and started anew, it works in five seconds.

Eight of its heartbeats (`lifeline`). A worker needs two seconds to start.
"""

LOOK_EVERY_S: Final = 0.25


class Silence:
    """The seconds since the last heartbeat of one process; none before the first.

    Between two looks at most `LOOK_EVERY_S` counts: where this process waits for a processor, or
    was suspended, its child could not be heard either, and probably waits as well.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Begin to listen. `clock` counts seconds."""
        self._clock: Final = clock
        self._looked_at = clock()
        self._seconds: float | None = None  # No heartbeat so far: the process is starting.

    def end(self) -> None:
        """Note a heartbeat."""
        self._seconds = 0.0

    def has_lasted(self) -> bool:
        """Look: whether the process has been silent for `LIMIT_S`."""
        now = self._clock()
        passed = min(now - self._looked_at, LOOK_EVERY_S)
        self._looked_at = now
        if self._seconds is not None:
            self._seconds += passed
        return (self._seconds or 0.0) >= LIMIT_S
