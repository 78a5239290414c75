"""What a program could log any number of times: one line, then a count."""

from collections.abc import Callable
from threading import Lock
from time import monotonic
from traceback import extract_tb
from typing import Final

import structlog

from cardledger.ledger.storage.engines import is_refusal, message_of

_QUIET_S: Final = 600.0
_CAUSES: Final = 100  # That are told apart; a program has far fewer.

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


class RepeatedFailure:
    """Logs `event` for each cause of a failure as `RepeatedWarning` does.

    A refusal of PostgreSQL is told by its message, without the row that it is about; any other
    exception by where it was raised, and it is logged with its traceback.
    """

    def __init__(self, event: str, *, clock: Callable[[], float] = monotonic) -> None:
        self._event: Final = event
        self._clock: Final = clock
        self._warnings: Final[dict[tuple[object, ...], RepeatedWarning]] = {}

    def note(self, error: Exception, **details: object) -> None:
        """Count one more failure; `details` say of what."""
        cause: tuple[object, ...]
        if is_refusal(error):
            cause = type(error), message_of(error)
            # No traceback: it would quote the row, which holds personal data.
            details |= {"error": message_of(error)}
        else:
            cause = type(error), _place_of(error)
            details |= {"exc_info": error}
        if cause not in self._warnings and len(self._warnings) >= _CAUSES:
            self._warnings.clear()
        warning = self._warnings.setdefault(cause, RepeatedWarning(self._event, clock=self._clock))
        warning.note(1, **details)


def _place_of(error: Exception) -> object:
    """Return where `error` was raised, if it was."""
    frames = extract_tb(error.__traceback__)
    return (frames[-1].filename, frames[-1].lineno) if frames else None
