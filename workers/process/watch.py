"""The watch of a worker process: end transactions of silent workers, compare the clocks.

Its query, twice a second, also shows that its own worker is not silent (`batch_connections`).
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic
from typing import Final

import structlog
from sqlalchemy import Connection
from typing_extensions import override

from cardledger.ledger.storage import batch_connections, database_clock
from cardledger.ledger.storage.engines import UNAVAILABLE_ERRORS, driver
from cardledger.workers.signals.periodic_task import PeriodicTask

_EVERY_S: Final = 0.5

_log = structlog.get_logger()


def _end_stale(connection: Connection) -> bool:
    """End the database transactions of silent workers; return whether there were any."""
    ended = batch_connections.end_stale(driver(connection))
    for transaction in ended:
        _log.warning(
            "database transaction of a silent worker ended",
            work=transaction.work,
            worker=transaction.worker,
            silent_s=round(transaction.silence.total_seconds(), 1),
        )
    return bool(ended)


class SessionWatch:
    """Looks after the workers of a database: ends what those that are silent hold."""

    def __init__(
        self,
        database_url: str,
        worker_id: str,
        *,
        on_change: Callable[[], None],
        decides_events: bool = False,
    ) -> None:
        """Watch for the worker `worker_id`; call `on_change` when a transaction was ended."""
        self._database: Final = batch_connections.watch_engine(
            database_url, worker_id, decides_events=decides_events
        )
        self._on_change: Final = on_change
        self._task: Final = PeriodicTask("watch", self._look, every_s=_EVERY_S)

    def start(self) -> None:
        """Start to look."""
        self._task.start()
        self._task.wake()

    def stop(self, limit_s: float) -> None:
        """Look no more."""
        self._task.stop(limit_s)
        self._database.dispose()

    def _look(self) -> bool:
        try:
            with self._database.connect() as connection:
                ended = _end_stale(connection)
                has_changed = self._observe(connection)
        except UNAVAILABLE_ERRORS:
            return False  # The worker logs the outage; the watch asks again.
        if ended or has_changed:
            self._on_change()
        return False

    def _observe(self, _connection: Connection) -> bool:
        """Look at what else is watched; return whether there may be something to do now."""
        return False


class Watch(SessionWatch):
    """Looks after the clock of its own process as well, for a worker that decides events."""

    def __init__(
        self,
        database_url: str,
        worker_id: str,
        *,
        clock: Callable[[], datetime],
        on_change: Callable[[], None],
    ) -> None:
        """Watch for the worker `worker_id`, whose `clock` it compares with PostgreSQL's.

        Calls `on_change` when transactions were ended, or the clock has become right: there may be
        messages to decide.
        """
        super().__init__(database_url, worker_id, on_change=on_change, decides_events=True)
        self._clock: Final = clock
        self._clock_ahead: timedelta | None = None  # Unknown so far.

    @property
    def is_clock_right(self) -> bool:
        """Whether the clock was right when PostgreSQL was last asked; False before the first time.

        Decisions are made by PostgreSQL's clock, but ids and times of receipt are not.
        """
        return self._clock_ahead == timedelta(0)

    def check_clock(self) -> str | None:
        """Return what is wrong with the clock, and what to do; None when it is right."""
        if not self._clock_ahead:
            return None
        seconds = self._clock_ahead.total_seconds()
        return f"the clock is {seconds:+.1f} s off PostgreSQL's; check NTP"

    def clock_offset_s(self) -> float | None:
        """Return how far the clock is ahead; 0 within the tolerance, None when it is unknown."""
        return None if self._clock_ahead is None else self._clock_ahead.total_seconds()

    @override
    def _observe(self, connection: Connection) -> bool:
        asked, asked_at = self._clock(), monotonic()
        answer = database_clock.read(driver(connection))
        took = timedelta(seconds=monotonic() - asked_at)
        return self._has_become_right(database_clock.ahead(asked, answer, took))

    def _has_become_right(self, ahead: timedelta) -> bool:
        """Note how far `ahead` the clock is; return whether it is right and was not before."""
        was_wrong, was_right = bool(self._clock_ahead), self.is_clock_right
        self._clock_ahead = ahead
        if was_wrong and not ahead:
            _log.info("clock correct again; decisions resume")
        elif ahead and not was_wrong:
            _log.error(
                "clock wrong; decisions stop until it is correct",
                ahead_of_postgresql_s=round(ahead.total_seconds(), 3),
            )
        return self.is_clock_right and not was_right
