"""PostgreSQL's clock as a client knows it: between two bounds, as far apart as a reading took.

The clock of this process may be wrong; the engine decides by PostgreSQL's.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from cardledger.ledger.storage.database_clock import elapsed_s
from cardledger.ledger.storage.engines import driver_async
from cardledger.workers.client.errors import DATABASE_UNAVAILABLE
from cardledger.workers.signals import database_failures
from cardledger.workers.signals.outage_log import DATABASE

_NOW: Final = "SELECT clock_timestamp()"
_READ_INTERVAL_S: Final = 5.0
_READ_TIMEOUT_S: Final = 1.0
_READ_AGAIN_S: Final = 0.25  # After a reading that failed or was slow.
_SLOW_S: Final = 0.05
_MARGIN_S: Final = 0.01  # Between two readings, the clocks may differ in speed.
_DRIFT: Final = 0.000_5  # By so many seconds in a second at most.


@dataclass(frozen=True, slots=True)
class Bounds:
    """A time that PostgreSQL has read after it was asked and before its reply arrived."""

    at: datetime
    sent_at: float  # On the clock of `elapsed_s`, as is the next.
    received_at: float

    def narrowed(self, later: "Bounds") -> "Bounds":
        """Return the bounds that both this and a `later` reading allow.

        So a reading that took long makes no deadline come early that is known better. Those of
        `later` alone when both cannot be true: then PostgreSQL's clock was set.
        """
        drift_s = (later.received_at - self.received_at) * _DRIFT
        passed_s = (later.at - self.at).total_seconds()
        sent_at = max(self.sent_at + passed_s - drift_s, later.sent_at)
        received_at = min(self.received_at + passed_s + drift_s, later.received_at)
        return Bounds(later.at, sent_at, received_at) if sent_at <= received_at else later

    @property
    def is_slow(self) -> bool:
        """Whether the bounds are far apart."""
        return self.received_at - self.sent_at > _SLOW_S

    def reached_from(self, moment: datetime) -> float:
        """Return what `elapsed_s` shows before PostgreSQL's clock can show `moment`."""
        return self.sent_at + (moment - self.at).total_seconds()

    def passed_from(self, moment: datetime) -> float:
        """Return what `elapsed_s` shows once PostgreSQL's clock certainly shows `moment`."""
        return self.received_at + (moment - self.at).total_seconds() + _MARGIN_S


class DatabaseClock:
    """The time of PostgreSQL, read every few seconds and continued by `elapsed_s`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine: Final = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._reads_soon = True
        self.bounds: Bounds | None = None  # None until the first reading: nothing is known then.

    def now(self) -> datetime:
        """Return the present time, ahead by at most the round trip of the quickest reading.

        Behind only after PostgreSQL's clock was set by less than the round trip of the last one.

        Until the first reading it is the time of this process, by which no deadline is kept.
        """
        if self.bounds is None:
            return datetime.now(UTC)
        return self.bounds.at + timedelta(seconds=elapsed_s() - self.bounds.sent_at)

    async def read(self) -> None:
        """Read the time; without PostgreSQL, the last reading stays."""
        self._reads_soon = True
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S), self._engine.connect() as outer:
                connection = await driver_async(outer)
                sent_at = elapsed_s()
                cursor = await connection.execute(_NOW)
                row = await cursor.fetchone()
                received_at = elapsed_s()
        except (*DATABASE_UNAVAILABLE, TimeoutError) as error:
            database_failures.note(error)
            return
        DATABASE.succeeded()
        assert row is not None, "a SELECT without FROM has a row"
        bounds = Bounds(row[0], sent_at, received_at)
        self.bounds = self.bounds.narrowed(bounds) if self.bounds else bounds
        self._reads_soon = bounds.is_slow

    async def read_again(self) -> None:
        """Wait a while, then read the time."""
        await asyncio.sleep(_READ_AGAIN_S if self._reads_soon else _READ_INTERVAL_S)
        await self.read()
