"""Engines: how this process reaches PostgreSQL."""

import select
from typing import Any

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from cardledger.schema import ids, location

# A hung statement or a lost client must not hold the locks of an account for ever. The facade
# answers long before these, and a worker tries again.
_OPTIONS = "-c timezone=UTC -c statement_timeout=60s -c idle_in_transaction_session_timeout=60s"

# Every look-up of the hot path goes by key. On a young table the planner would rather scan or
# hash it whole, and keep that plan while the table grows: 4 ms instead of 0.2 ms. What is
# forbidden here costs a fortune on paper, for which the planner would also compile a statement
# that runs in a millisecond.
_KEYED = (
    " -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"
    " -c plan_cache_mode=force_generic_plan"
)

# A connection was refused or lost; a standby that only reads; a deadlock; no room on the disk or in
# memory; a statement that was ended, by its time limit or by whoever runs the server; an I/O error.
_UNABLE_STATES = ("08", "25006", "40", "53", "57", "58")


def driver(connection: Connection) -> psycopg.Connection[Any]:
    """Return psycopg's connection below `connection`, in its database transaction.

    The hot path speaks to it: COPY and binary rows have no words in SQLAlchemy.
    """
    below = connection.connection.driver_connection
    assert isinstance(below, psycopg.Connection)
    return below


async def driver_async(connection: AsyncConnection) -> psycopg.AsyncConnection[Any]:
    """Do as `driver` does, for an event loop."""
    below = (await connection.get_raw_connection()).driver_connection
    assert isinstance(below, psycopg.AsyncConnection)
    return below


def is_unable(error: Exception) -> bool:
    """Return whether `error` says that PostgreSQL cannot now, and nothing of what it was asked."""
    match error:
        case psycopg.Error(sqlstate=str(state)):
            return state.startswith(_UNABLE_STATES)
        case psycopg.OperationalError():
            return True
        case _:
            return isinstance(error, OperationalError | PoolTimeoutError)


def driver_url(url: str) -> URL:
    """Return `url` with the psycopg 3 driver named, whichever way it was written."""
    parsed = make_url(url)
    return parsed.set(drivername="postgresql+psycopg")


def sync_engine(
    url: str,
    *,
    keyed: bool = False,
    waits_for_disk: bool = True,
    **options: Any,  # noqa: ANN401 - handed through
) -> Engine:
    """Return an engine for threads; `keyed` is for connections that only look up by key.

    Without `waits_for_disk` a crash of PostgreSQL may undo the last half second of commits: for
    work that is then found again, and done again.
    """
    made = _options(url, keyed=keyed, waits_for_disk=waits_for_disk)
    engine = create_engine(driver_url(url), **made, **options)
    _watch(engine)
    return engine


def async_engine(url: str, *, keyed: bool = False, **options: Any) -> AsyncEngine:  # noqa: ANN401 - handed through
    """Return an engine for an event loop; `keyed` as in `sync_engine`."""
    engine = create_async_engine(driver_url(url), **_options(url, keyed=keyed), **options)
    _watch(engine.sync_engine)
    return engine


def _watch(engine: Engine) -> None:
    """Have connections know ids, and none handed out whose server has gone meanwhile.

    A pooled connection on which nothing was said is good, which costs a microsecond to see; only
    one that has something to read (mostly: the end) is asked, which costs a round trip.
    """

    def look(connection: DBAPIConnection, entry: ConnectionPoolEntry, _: object) -> None:
        try:
            if _has_something_to_read(entry):
                engine.dialect.do_ping(connection)
        except Exception as error:
            # Those that wait beside it were connected to the same server.
            raise InvalidatePoolError from error

    def introduce(_: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        assert isinstance(entry.driver_connection, psycopg.Connection | psycopg.AsyncConnection)
        ids.register(entry.driver_connection.adapters)

    event.listen(engine, "connect", introduce)
    event.listen(engine, "checkout", look)


def _has_something_to_read(entry: ConnectionPoolEntry) -> bool:
    assert entry.driver_connection is not None
    readable = select.poll()
    readable.register(entry.driver_connection.pgconn.socket, select.POLLIN)
    return bool(readable.poll(0))


def _options(url: str, *, keyed: bool, waits_for_disk: bool = True) -> dict[str, Any]:
    # Those of the URL first: they name the PostgreSQL schema, and cannot undo the others.
    named = location.options_in(location.with_default(url))
    settings = f"{named} {_OPTIONS}{_KEYED if keyed else ''}"
    return {
        "connect_args": {
            "options": settings if waits_for_disk else f"{settings} -c synchronous_commit=off",
            "application_name": "cardledger",
            "connect_timeout": 5,
            "prepare_threshold": 2,
        },
        # Instead of a round trip for every connection that is taken: see `_watch`.
        "pool_pre_ping": False,
        # Parameters are names, amounts and addresses of people, and errors are logged.
        "hide_parameters": True,
        "pool_recycle": 1800,
    }
