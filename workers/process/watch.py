"""The watch of a worker process: end transactions of silent workers, read PostgreSQL's clock.

Its query, twice a second, also shows that its own worker is not silent (`batch_connections`).
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

import structlog
from sqlalchemy import Connection

from cardledger.ledger.storage import batch_connections, database_clock
from cardledger.ledger.storage.database_clock import Reading
from cardledger.ledger.storage.engines import UNAVAILABLE_ERRORS, driver
from cardledger.workers.metrics import families
from cardledger.workers.metrics.instruments import Gauge, Source
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


class Watch:
    """Looks after the workers of a database, and after the clock of its own process.

    It ends what silent workers hold, and compares the clock with PostgreSQL's.
    """

    def __init__(
        self,
        database_url: str,
        worker_id: str,
        *,
        clock: Callable[[], datetime],
        decides_events: bool,
    ) -> None:
        """Watch for the worker `worker_id`, whose `clock` is compared."""
        self._database: Final = batch_connections.watch_engine(
            database_url, worker_id, decides_events=decides_events
        )
        self._decides_events: Final = decides_events
        self._clock: Final = clock
        self._clock_ahead: timedelta | None = None  # Unknown so far.
        self._reading: Reading | None = None
        self._first_reading: Final = Lock()
        self._called: Final[list[Callable[[], None]]] = []
        self.task: Final = PeriodicTask("watch", self._look, every_s=_EVERY_S)
        self.metrics: Final[Sequence[Source]] = (
            Gauge(families.CLOCK_OFFSET, self._clock_offset_s),
        )

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` when there may be something to do.

        That is when a database transaction was ended, or the clock has become right.
        """
        self._called.append(function)

    def start(self) -> None:
        """Start to look."""
        self.task.start()
        self.task.wake()

    def stop(self, limit_s: float) -> None:
        """Look no more."""
        self.task.stop(limit_s)
        self._database.dispose()

    # --- the clock -------------------------------------------------------------------------

    def now(self) -> datetime:
        """Return the time of PostgreSQL's clock, whatever the clock of this process says.

        Raises: as SQLAlchemy and psycopg do, when PostgreSQL was not reached so far.
        """
        if self._reading is None:
            with self._first_reading:
                if self._reading is None:
                    with self._database.connect() as connection:
                        self._reading = database_clock.read_timed(driver(connection))
        return self._reading.now()

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

    def _clock_offset_s(self) -> float | None:
        """Return how far the clock is ahead; 0 within the tolerance, None when it is unknown."""
        return None if self._clock_ahead is None else self._clock_ahead.total_seconds()

    # --- looks -----------------------------------------------------------------------------

    def _look(self) -> bool:
        try:
            with self._database.connect() as connection:
                has_become_right = self._compare_clock(connection)
                ended = _end_stale(connection)
        except UNAVAILABLE_ERRORS:
            return False  # The worker logs the outage; the watch asks again.
        if ended or has_become_right:
            for function in self._called:
                function()
        return False

    def _compare_clock(self, connection: Connection) -> bool:
        """Read PostgreSQL's clock; return whether that of this process is right and was not."""
        asked = self._clock()
        reading = database_clock.read_timed(driver(connection))
        self._reading = self._reading.better(reading) if self._reading else reading
        return self._has_become_right(database_clock.ahead(asked, reading.at, reading.took))

    def _has_become_right(self, ahead: timedelta) -> bool:
        """Note how far `ahead` the clock is; return whether it is right and was not before."""
        was_wrong, was_right = bool(self._clock_ahead), self.is_clock_right
        self._clock_ahead = ahead
        if was_wrong and not ahead:
            resumed = "; decisions resume" if self._decides_events else ""
            _log.info(f"clock correct again{resumed}")
        elif ahead and not was_wrong:
            effect = (
                "decisions stop until it is correct"
                if self._decides_events
                else "webhooks are sent by PostgreSQL's clock"
            )
            _log.error(
                f"clock wrong; {effect}",
                ahead_of_postgresql_s=round(ahead.total_seconds(), 3),
            )
        return self.is_clock_right and not was_right
