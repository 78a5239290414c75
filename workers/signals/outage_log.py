"""Outages of the servers that a process uses: one line at the start, one at the end."""

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Final

import structlog

from cardledger.ledger.storage.engines import message_of

QUIET_S: Final = 2.0
"""How long every attempt must succeed before an outage is over; a flapping server stays out."""

_log = structlog.get_logger()


class OutageLog:
    """Whether a server is unavailable, as its users in this process report it.

    May be called in any thread and event loop; a success costs one comparison while all is well.
    """

    def __init__(
        self, server: str, *, consequence: str = "", clock: Callable[[], float] = monotonic
    ) -> None:
        """Log about `server`, and the `consequence` of an outage."""
        self._server: Final = server
        self._consequence: Final = consequence
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._since: float | None = None
        self._last_failure = 0.0
        self._failures = 0

    @property
    def is_out(self) -> bool:
        """Whether an outage has begun and not ended."""
        return self._since is not None

    @property
    def failures(self) -> int:
        """How often the server failed in the present outage."""
        return self._failures

    def failed(self, error: BaseException) -> None:
        """Take note that the server did not do what it was asked."""
        with self._lock:
            self._last_failure = self._clock()
            self._failures += 1
            if self._since is not None:
                return
            self._since = self._last_failure
        cause = message_of(error) if isinstance(error, Exception) else str(error)
        _log.warning(f"{self._server} unavailable{self._consequence}", error=cause)

    def succeeded(self) -> None:
        """Take note that the server did; the outage is over when nothing has failed for a while."""
        if not self.is_out:
            return
        with self._lock:
            now, since = self._clock(), self._since
            if since is None or now - self._last_failure < QUIET_S:
                return
            duration, failures = now - since, self._failures
            self._since, self._failures = None, 0
        _log.warning(
            f"{self._server} available again", outage_s=round(duration, 1), failures=failures
        )


DATABASE: Final = OutageLog("database", consequence="; everything that waits is retried")
"""PostgreSQL, for this process."""

REDIS: Final = OutageLog("redis", consequence="; falling back to polling")
"""Redis, for this process."""
