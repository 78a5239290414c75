"""PostgreSQL's clock, by which every decision is made; the clock of this process may be wrong."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Final

from psycopg import AsyncConnection, Connection

LIMIT: Final = timedelta(milliseconds=250)
"""How far the clock of a process may be off PostgreSQL's."""

_NOW: Final = "SELECT clock_timestamp()"


@dataclass(frozen=True, slots=True)
class Reading:
    """A time that was read from PostgreSQL."""

    at: datetime
    received_at: float  # On the clock of `monotonic`.

    def now(self) -> datetime:
        """Return the present time of PostgreSQL's clock, without asking again.

        Behind it by what the answer took to arrive.
        """
        return self.at + timedelta(seconds=monotonic() - self.received_at)


def read(connection: Connection[Any]) -> datetime:
    """Return the time."""
    row = connection.cursor(binary=True).execute(_NOW).fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


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
