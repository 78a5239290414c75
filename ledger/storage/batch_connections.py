"""Connections of batches: short waits for locks, and the name of their worker.

A batch owns its queues and accounts by the row locks of its database transaction. No other worker
can take them while PostgreSQL holds these locks, and nothing of the batch is committed once they
are gone: the transaction is the lease, and its roll-back the fence. A frozen worker keeps its
locks, because PostgreSQL waits for its next statement. So every batch connection is named after its
worker, and every worker has a *watch*: a connection on which it looks twice a second for batches
that wait for their client while the watch of their worker is silent, and ends them
(docs/decisions/0028). The same holds for its periodic tasks, which lock the timers, and for the
sender of webhooks, which locks the dispatch: others would wait for them.
"""

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from time import time
from typing import Any, Final

import psycopg
from psycopg import Connection
from sqlalchemy import Engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from cardledger.ledger.storage.engines import sync_engine

LOCK_TIMEOUT_MS: Final = 250
"""How long a batch waits for a lock. Another batch holds its locks for a tenth of that."""

LEASE: Final = timedelta(seconds=2.5)
"""How long a worker may be silent before others end its batches."""

_SILENCE_LIMIT_S: Final = 10
"""How long a batch may wait for a client whose worker is alive: slow, or short of processors."""

_SETTINGS: Final = (
    f"-c lock_timeout={LOCK_TIMEOUT_MS}ms"
    # For the last worker, which no other watches. PostgreSQL counts it from the end of a pipeline
    # only: inside one, `transaction_timeout` ends the batch.
    f" -c idle_in_transaction_session_timeout={_SILENCE_LIMIT_S}s"
)

# From PostgreSQL 17 on. Unlike `statement_timeout` it ends a COPY that waits for its client.
_TRANSACTION_TIMEOUT: Final = "SET transaction_timeout = '60s'"
_TRANSACTION_TIMEOUT_VERSION: Final = 17_00_00

_BATCH: Final = "cardledger batch"
_TASKS: Final = "cardledger tasks"

WATCH: Final = "cardledger watch"
"""The name of the watch of a worker, before the id of the worker."""

WEBHOOKS: Final = "cardledger webhooks"
"""The name of the connections by which a worker sends webhooks, before its id."""

_WEBHOOKS_WATCH: Final = f"{WEBHOOKS} watch"  # Of a worker that decides no events.

_WORKER_ID: Final = re.compile(r"([0-9a-f]{12})\.([0-9]{1,10})\.([0-9]{1,11})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerId:
    """What the id of a worker says about it."""

    pid: int
    began_at: datetime

    @classmethod
    def parse(cls, text: str) -> "WorkerId | None":
        """Return what `text` says; None: it is not the id of a worker process."""
        found = _WORKER_ID.fullmatch(text)
        if found is None:
            return None
        return cls(pid=int(found[2]), began_at=datetime.fromtimestamp(int(found[3]), UTC))


def new_worker_id() -> str:
    """Return a name for the connections of this process, unlike that of any other worker.

    It has the process id and the second of now, for people who look at the connections.
    """
    return f"{token_hex(6)}.{os.getpid()}.{int(time())}"


def batch_engine(url: str, worker_id: str | None = None, **options: Any) -> Engine:  # noqa: ANN401 - handed through
    """Return an engine for the batches of the worker `worker_id`, or of one without a watch."""
    name = _BATCH if worker_id is None else f"{_BATCH} {worker_id}"
    engine = sync_engine(url, keyed=True, application_name=name, settings=_SETTINGS, **options)
    event.listen(engine, "connect", _limit_transactions)
    return engine


def task_engine(url: str, worker_id: str, *, reply_limit_s: float, **options: Any) -> Engine:  # noqa: ANN401 - handed through
    """Return an engine for the periodic tasks of the worker `worker_id`."""
    name = f"{_TASKS} {worker_id}"
    return sync_engine(url, application_name=name, reply_limit_s=reply_limit_s, **options)


def look_engine(url: str, worker_id: str) -> Engine:
    """Return an engine by which the worker `worker_id` looks by key for work: one connection."""
    return sync_engine(
        url,
        keyed=True,
        application_name=f"{_TASKS} {worker_id}",
        settings=f"-c lock_timeout={LOCK_TIMEOUT_MS}ms",
        pool_size=1,
        max_overflow=0,
    )


def watch_engine(url: str, worker_id: str, *, decides_events: bool = True) -> Engine:
    """Return an engine for the watch of the worker `worker_id`: one connection, for `end_stale`."""
    name = f"{WATCH if decides_events else _WEBHOOKS_WATCH} {worker_id}"
    engine = sync_engine(url, application_name=name, pool_size=1, max_overflow=0)
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def _limit_transactions(_: object, entry: ConnectionPoolEntry) -> None:
    connection = entry.driver_connection
    assert isinstance(connection, psycopg.Connection)
    if connection.info.server_version >= _TRANSACTION_TIMEOUT_VERSION:
        with connection.transaction():
            connection.execute(_TRANSACTION_TIMEOUT)


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    """A database transaction that was ended because its worker was silent."""

    work: str  # batch, tasks or webhooks
    worker: str
    silence: timedelta


# `Client`: PostgreSQL has finished its statement, and waits for the next one or for the data
# of a COPY. What waits for a lock, the disk or a processor is slow, and left alone.
_END_STALE: Final = f"""
    SELECT b.application_name, b.silence, pg_terminate_backend(b.pid)
    FROM (
        SELECT pid, application_name, substring(application_name FROM '[^ ]+$') AS worker,
            clock_timestamp() - greatest(state_change, query_start) AS silence
        FROM pg_stat_activity
        WHERE datname = current_database() AND usename = current_user
            AND application_name ~ '^({_BATCH}|{_TASKS}|{WEBHOOKS})( [^ ]+)?$'
            AND xact_start IS NOT NULL AND wait_event_type = 'Client'
    ) b
    WHERE b.silence > %(lease)s
        AND (
            b.silence > '{_SILENCE_LIMIT_S}s' AND starts_with(b.application_name, '{_BATCH}')
            OR NOT EXISTS (
                SELECT FROM pg_stat_activity w
                WHERE w.datname = current_database() AND w.usename = current_user
                    AND w.application_name
                        IN ('{WATCH} ' || b.worker, '{_WEBHOOKS_WATCH} ' || b.worker)
                    AND w.query_start > clock_timestamp() - %(lease)s
            )
        )
"""


def end_stale(connection: Connection[Any], lease: timedelta = LEASE) -> list[EndedTransaction]:
    """End the database transactions of workers that have been silent for `lease`; return which.

    They are those of the role of `connection`. PostgreSQL rolls each back and frees its locks; what
    it worked on is in the tables for any worker.
    """
    rows = connection.execute(_END_STALE, {"lease": lease}).fetchall()
    return [_ended(name, silence) for name, silence, _ in rows]


def _ended(name: str, silence: timedelta) -> EndedTransaction:
    _, work, *worker = name.split(" ")
    return EndedTransaction(work, " ".join(worker), silence)
