"""Whether several platforms have messages in the queues of a lane: then a batch is shared fairly.

A batch takes the oldest messages, which costs least, and is fair while no queue is long. Only where
messages are left behind does it matter whose they are. So a batch that leaves some looks now and
then whether they are of several platforms.
"""

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Final

from cardledger.ledger.messaging.inbox import Lane

LOOK_INTERVAL_S: Final = 0.25
"""How long the messages of another platform may wait before batches are shared with it."""

_MEMORY_S: Final = 5.0


class Sharing:
    """What the batches of one process know about it; for several threads."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Know of one platform. `clock` counts seconds."""
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._looked_at: Final[dict[Lane, float]] = {}
        self._shared_at: Final[dict[Lane, float]] = {}

    def is_shared(self, lane: Lane) -> bool:
        """Return whether messages of several platforms have waited in `lane` lately."""
        shared_at = self._shared_at.get(lane)
        return shared_at is not None and self._clock() - shared_at < _MEMORY_S

    def is_look_due(self, lane: Lane) -> bool:
        """Return whether to look now; no other thread is to do so for a while then."""
        now = self._clock()
        with self._lock:
            if now - self._looked_at.get(lane, float("-inf")) < LOOK_INTERVAL_S:
                return False
            self._looked_at[lane] = now
            return True

    def note(self, lane: Lane, *, several: bool) -> None:
        """Note whether messages of several platforms wait in `lane`."""
        if several:
            self._shared_at[lane] = self._clock()
