"""How long a child process has been silent, measured by its parent."""

from collections.abc import Callable
from time import monotonic
from typing import Final

LIMIT_S: Final = 2.0
"""A child that is silent for so long is frozen: killed and started anew, it works in five seconds.

Eight of its heartbeats (`lifeline`). A worker needs two seconds to start.
"""

START_LIMIT_S: Final = 180.0
"""A child without a heartbeat for so long since its start is frozen as well.

Much longer: it reports once it serves, and may start on a slow machine, beside others.
"""

LOOK_EVERY_S: Final = 0.25


class Silence:
    """The seconds since the last heartbeat of one process, or since its start.

    Between two looks at most `LOOK_EVERY_S` counts: where this process waits for a processor, or
    was suspended, its child could not be heard either, and probably waits as well.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Begin to listen. `clock` counts seconds."""
        self._clock: Final = clock
        self._looked_at = clock()
        self._seconds = 0.0
        self.limit_s = START_LIMIT_S
        """How long it may last."""

    def end(self) -> None:
        """Note a heartbeat."""
        self._seconds = 0.0
        self.limit_s = LIMIT_S

    def has_lasted(self) -> bool:
        """Look: whether the process has been silent for `limit_s`."""
        now = self._clock()
        self._seconds += min(now - self._looked_at, LOOK_EVERY_S)
        self._looked_at = now
        return self._seconds >= self.limit_s
