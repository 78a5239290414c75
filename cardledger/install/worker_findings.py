"""What `cardledger doctor` says about workers: whether one decides, and whose locks stop them."""

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, Final

import psycopg
from psycopg import Connection

from cardledger.install.findings import CONNECTION_NAME, FAIL, OK, UNKNOWN, WARN, Finding
from cardledger.ledger.messaging import undecided
from cardledger.ledger.messaging.inbox import SHARDS, Lane
from cardledger.ledger.queries.console import running_workers

_WORKERS: Final = "workers"
_LOCKS: Final = "queue locks"

_QUEUES: Final = [(lane, shard) for lane in Lane for shard in range(SHARDS)]

_HELD_S: Final = 4.0
"""A session that locks queues for so long is reported: a batch has ended long before."""
_POLL_S: Final = 0.1
_LIMIT: Final = 1000  # Sessions that are read.
_NAMED: Final = 3

# A pooler that replaces the name of this connection replaces those of workers as well.
_HAS_ITS_NAME: Final = """
    SELECT application_name = %s FROM pg_stat_activity WHERE pid = pg_backend_pid()
"""


def connected(connection: Connection[Any], *, is_running: bool) -> Finding:
    """Return whether a worker that decides events is connected to the database.

    Without one it is an error where a system runs (`is_running`) or a message waits; before the
    first start of a worker, a warning. `connection` is called CONNECTION_NAME.
    """
    workers = running_workers.read(connection)
    deciding = sum(worker.decides_events for worker in workers)
    if deciding:
        sending = sum(worker.sends_webhooks for worker in workers)
        detail = f"{deciding} for events and {sending} for webhooks connected to PostgreSQL"
        return Finding(name=_WORKERS, state=OK, detail=detail)
    if connection.execute(_HAS_ITS_NAME, [CONNECTION_NAME]).fetchone() != (True,):
        detail = "not known: a pooler replaces the names of connections"
        return Finding(name=_WORKERS, state=UNKNOWN, detail=detail)
    waiting = _oldest_message(connection)
    return Finding(
        name=_WORKERS,
        state=FAIL if is_running or waiting else WARN,
        detail=f"no worker for events is connected to PostgreSQL{waiting}",
        fix="cardledger worker --only events; the log of one that runs says why it cannot connect",
    )


def _oldest_message(connection: Connection[Any]) -> str:
    """Return words about the message that waits longest; none if there is none, or not shown."""
    try:
        oldest = undecided.read(connection, _QUEUES).oldest_received_at
    except psycopg.errors.InsufficientPrivilege:
        return ""
    if oldest is None:
        return ""
    return f"; the oldest message has waited since {oldest:%Y-%m-%d %H:%M:%S %Z}"


# --- locks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holder:
    """A session with locks on rows of `inbox_shards`; `age_s` of its database transaction.

    PostgreSQL shows the age to the session's own login and to members of `pg_read_all_stats` only.
    """

    pid: int
    user: str
    application_name: str
    age_s: float | None


# Locks of rows are in the rows. Of the table, the session that has them holds a lock until the end
# of its database transaction, of which every login sees the number. The two modes left out lock no
# row: those of SELECT and of VACUUM.
_HOLDERS: Final = f"""
    SELECT l.virtualtransaction, a.pid, a.usename, a.application_name,
        extract(epoch FROM clock_timestamp() - a.xact_start)::float8
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.relation = 'inbox_shards'::regclass
        AND l.database = a.datid AND a.datname = current_database() AND l.granted
        AND l.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock')
    LIMIT {_LIMIT}
"""


def locks(connection: Connection[Any]) -> Finding:
    """Return which sessions have locked rows of `inbox_shards` for more than four seconds.

    Batches pass these queues over. Where PostgreSQL does not show the age of a session, this looks
    at it for as long.
    """
    held = _held_long(connection)
    if not held:
        detail = f"no session has locked rows of inbox_shards for {_HELD_S:.0f} s"
        return Finding(name=_LOCKS, state=OK, detail=detail)
    named = "; ".join(map(_in_words, held[:_NAMED]))
    more = f"; and {len(held) - _NAMED} more" if len(held) > _NAMED else ""
    ends = [f"-c 'SELECT pg_terminate_backend({each.pid})'" for each in held[:_NAMED]]
    return Finding(
        name=_LOCKS,
        state=FAIL,
        detail=f"rows of inbox_shards are locked, whose queues no worker decides: {named}{more}",
        fix=f"psql {' '.join(ends)}",
    )


def _held_long(connection: Connection[Any]) -> list[_Holder]:
    """Return the sessions that have held their locks for `_HELD_S`, the oldest first."""
    end = monotonic() + _HELD_S
    holders = _read(connection)
    # Of those whose age is not shown, the ones that are still in the same database transaction.
    unknown = {key for key, holder in holders.items() if holder.age_s is None}
    while unknown and monotonic() < end:
        sleep(_POLL_S)
        holders = _read(connection)
        unknown &= holders.keys()
    held = [
        holder
        for key, holder in holders.items()
        if key in unknown or (holder.age_s is not None and holder.age_s >= _HELD_S)
    ]
    return sorted(held, key=lambda each: (-(each.age_s or _HELD_S), each.pid))


def _read(connection: Connection[Any]) -> Mapping[str, _Holder]:
    return {
        key: _Holder(pid=pid, user=user, application_name=name, age_s=age_s)
        for key, pid, user, name, age_s in connection.execute(_HOLDERS.encode())
    }


def _in_words(holder: _Holder) -> str:
    named = f" ({holder.application_name})" if holder.application_name else ""
    age = f"{holder.age_s:.0f} s" if holder.age_s is not None else f"more than {_HELD_S:.0f} s"
    return f"session {holder.pid} of {holder.user}{named} for {age}"
