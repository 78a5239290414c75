"""Sources of the schedule, asked first whether something is due."""

from datetime import datetime
from typing import Any, Protocol

from psycopg import Connection


class Source(Protocol):
    """A source of the schedule (`workers.process.schedule`)."""

    @property
    def is_due(self) -> str: ...

    def enqueue_due(self, connection: Connection[Any], now: datetime) -> int: ...


def is_due(connection: Connection[Any], condition: str, now: datetime) -> bool:
    """Return whether `condition`, of a source, would have held at `now`."""
    query = f"SELECT {condition.replace('now()', '%(now)s')}".encode()
    row = connection.execute(query, {"now": now}).fetchone()
    assert row is not None
    return bool(row[0])


def enqueue_due(connection: Connection[Any], source: Source, now: datetime) -> int:
    """Do what is due at `now`; without a condition that holds, a worker would not have done it."""
    was_due = is_due(connection, source.is_due, now)
    written = source.enqueue_due(connection, now)
    assert was_due or not written
    return written
