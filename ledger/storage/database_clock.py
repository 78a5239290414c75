"""PostgreSQL's clock, by which every decision is made; the clock of this process may be wrong."""

import sys
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from psycopg import AsyncConnection, Connection

LIMIT: Final = timedelta(milliseconds=250)
"""How far the clock of a process may be off PostgreSQL's."""

_NOW: Final = "SELECT clock_timestamp()"


def elapsed_s() -> float:
    """Return seconds of a clock that is never set, and goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


@dataclass(frozen=True, slots=True)
class Reading:
    """A time that was read from PostgreSQL."""

    at: datetime
    received_at: float  # By `elapsed_s`.
    took: timedelta = timedelta(0)  # From the question to the answer; 0 when nothing asks again.

    def now(self) -> datetime:
        """Return the present time of PostgreSQL's clock, without asking again.

        Behind it by what the answer took to arrive.
        """
        return self._time_at(elapsed_s())

    def better(self, later: "Reading") -> "Reading":
        """Return which of two readings tells the time from now on.

        Both are behind PostgreSQL's clock by what their answers took to arrive, so it is the one
        that shows the later time: a reading that took long does not take the place of a quick one.
        But `later` holds when it is earlier by more than its round trip. Then PostgreSQL's clock
        was set back, or the clock of this machine is the faster one.
        """
        expected = self._time_at(later.received_at)
        return self if expected - later.took <= later.at < expected else later

    def _time_at(self, elapsed: float) -> datetime:
        return self.at + timedelta(seconds=elapsed - self.received_at)


def read(connection: Connection[Any]) -> datetime:
    """Return the time."""
    row = connection.cursor(binary=True).execute(_NOW).fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


def read_timed(connection: Connection[Any]) -> Reading:
    """Return the time, and how long it took to read it."""
    asked_at = elapsed_s()
    answer = read(connection)
    received_at = elapsed_s()
    return Reading(answer, received_at, timedelta(seconds=received_at - asked_at))


async def read_async(connection: AsyncConnection[Any]) -> datetime:
    """Do as `read` does, for an event loop."""
    row = await (await connection.execute(_NOW)).fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


def ahead(asked: datetime, answer: datetime, took: timedelta) -> timedelta:
    """Return by how much a clock is ahead of PostgreSQL's; zero when it may be within `LIMIT`.

    `answer` is PostgreSQL's time between the question, which was `asked` at that time of the
    clock, and its arrival, which `took` that long.
    """
    least, most = asked - answer, asked + took - answer
    if least > LIMIT:
        return least
    return most if most < -LIMIT else timedelta(0)
