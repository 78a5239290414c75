"""Warnings that a program could cause any number of times: one line, then a count."""

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Final

import structlog

_QUIET_S: Final = 600.0

_log = structlog.get_logger()


class RepeatedWarning:
    """Logs `event` at its first occurrence, and its count every ten minutes while it occurs.

    May be used in any thread and event loop.
    """

    def __init__(self, event: str, *, clock: Callable[[], float] = monotonic) -> None:
        self.count = 0
        """How often it has occurred."""
        self._event: Final = event
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._silent_until = float("-inf")
        self._logged = 0

    def note(self, times: int = 1, **details: object) -> None:
        """Count `times` occurrences; `details` describe the one that is logged."""
        with self._lock:
            self.count += times
            now = self._clock()
            if now < self._silent_until:
                return
            self._silent_until = now + _QUIET_S
            occurrences, self._logged = self.count - self._logged, self.count
        _log.warning(self._event, times=occurrences, **details)
