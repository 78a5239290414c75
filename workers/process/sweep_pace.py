"""How often a worker looks at the inbox: seldom while doorbells arrive, else again and again.

Source: docs/decisions/0054-polling-without-redis.md
"""

from collections.abc import Callable
from typing import Final

from cardledger.workers.signals.outage_log import DATABASE, REDIS

POLL_S: Final = 0.004
"""Between two looks while no doorbell can arrive."""

_SHARE: Final = 0.2  # Of the time that looks may take: a slow one must not keep PostgreSQL busy.
_PATIENCE: Final = 3  # A batch takes as long as a few looks.
_DOUBLINGS: Final = 8  # Enough to come to the usual interval.


def _has_no_doorbells() -> bool:
    """Whether doorbells are lost, and PostgreSQL answers."""
    return REDIS.is_out and not DATABASE.is_out


class SweepPace:
    """The time from one look to the next."""

    def __init__(
        self, usual_s: float, *, is_polling: Callable[[], bool] = _has_no_doorbells
    ) -> None:
        """Look every `usual_s`, and more often while `is_polling`."""
        self._usual_s: Final = usual_s
        self._is_polling: Final = is_polling
        self._look_s = 0.0  # How long the last look took.
        self._looks_in_vain = 0  # That found messages, since a batch has decided any.

    def looked(self, seconds: float, *, found: bool) -> None:
        """Note a look that took `seconds`, and whether it `found` messages."""
        self._look_s = seconds
        self._looks_in_vain = self._looks_in_vain + 1 if found else 0

    def failed(self) -> None:
        """Note that a look has failed: the next one is not hurried."""
        self._look_s = self._usual_s

    def decided(self) -> None:
        """Note that a batch has decided messages."""
        self._looks_in_vain = 0

    def next_s(self) -> float:
        """Return when to look again.

        Later and later while what waits cannot be decided, because a lock or a stall holds it.
        """
        if not self._is_polling():
            return self._usual_s
        doublings = min(max(0, self._looks_in_vain - _PATIENCE), _DOUBLINGS)
        return min(self._usual_s, max(POLL_S, self._look_s / _SHARE) * (1 << doublings))
