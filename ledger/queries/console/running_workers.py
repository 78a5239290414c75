"""Workers that are connected to PostgreSQL, as the names of their connections say.

A worker for events has a watch, a connection that makes a statement twice a second; a worker for
webhooks claims as often. When the last one was, PostgreSQL shows to logins that may read its
statistics; that the connection exists, and when its process began, to every login.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import AsyncConnection, Connection

from cardledger.ledger.storage.batch_connections import WATCH, WEBHOOKS, WorkerId
from cardledger.ledger.storage.engines import UNNAMED

_LIMIT: Final = 200  # Connections; a worker for webhooks has some twenty.

_LATEST: Final = datetime.max.replace(tzinfo=UTC)

_CONNECTED: Final = f"""
    SELECT application_name, max(query_start) FROM (
        SELECT application_name, query_start FROM pg_stat_activity
        WHERE datname = current_database()
            AND (starts_with(application_name, '{WATCH} ')
                OR starts_with(application_name, '{WEBHOOKS} '))
        LIMIT {_LIMIT * 20}
    ) named
    GROUP BY application_name ORDER BY application_name LIMIT {_LIMIT}
"""

# Where a pooler replaces the names of connections, that of this one is replaced as well.
_ARE_GONE: Final = f"""
    SELECT coalesce(bool_or(pid = pg_backend_pid() AND application_name = '{UNNAMED}'), false)
        AND NOT coalesce(bool_or(starts_with(application_name, '{WATCH} ')), false)
    FROM pg_stat_activity WHERE datname = current_database()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningWorker:
    """A worker process; `last_statement_at` is None where PostgreSQL does not show it."""

    id: str
    pid: int | None
    began_at: datetime | None
    decides_events: bool
    sends_webhooks: bool
    last_statement_at: datetime | None


def read(connection: Connection[Any]) -> Sequence[RunningWorker]:
    """Return the workers that are connected to the database, the oldest first."""
    return named(connection.execute(_CONNECTED.encode()).fetchall())


async def are_gone_async(connection: AsyncConnection[Any]) -> bool:
    """Return whether it is known that no worker for events is connected to the database.

    Shape: `connection` has the name that connections have without another one.
    """
    row = await (await connection.execute(_ARE_GONE)).fetchone()
    return row is not None and bool(row[0])


def named(rows: Iterable[tuple[str, datetime | None]]) -> Sequence[RunningWorker]:
    """Return the workers that the names of connections name, with their last statements."""
    parts: dict[str, dict[str, datetime | None]] = {}
    for name, last_statement_at in rows:
        part, _, worker_id = name.rpartition(" ")
        parts.setdefault(worker_id, {})[part] = last_statement_at
    workers = [_worker(worker_id, found) for worker_id, found in parts.items()]
    return sorted(workers, key=lambda each: (each.began_at or _LATEST, each.id))


def _worker(worker_id: str, parts: dict[str, datetime | None]) -> RunningWorker:
    named = WorkerId.parse(worker_id)
    return RunningWorker(
        id=worker_id.partition(".")[0],
        pid=None if named is None else named.pid,
        began_at=None if named is None else named.began_at,
        decides_events=WATCH in parts,
        sends_webhooks=WEBHOOKS in parts,
        last_statement_at=max((at for at in parts.values() if at is not None), default=None),
    )
