"""Engines: connections of this process to PostgreSQL."""

import select
from typing import Any, Final

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InterfaceError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from cardledger.schema import ids, location

# A hung statement or a lost client must not hold the locks of an account indefinitely. The API
# answers long before these time limits, and a worker retries.
_OPTIONS = "-c timezone=UTC -c statement_timeout=60s -c idle_in_transaction_session_timeout=60s"

# Every look-up of the hot path is by key. On a small table the planner would choose to scan or
# hash it whole, and keep that plan while the table grows: 4 ms instead of 0.2 ms. Disabled plans
# have a high estimated cost, so the planner would also JIT-compile a statement of a millisecond.
_KEYED = (
    " -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"
    " -c plan_cache_mode=force_generic_plan"
)

# A connection refused or lost; a read-only standby; a deadlock; no room on the disk or in memory; a
# statement cancelled, by its time limit or by an administrator; an I/O error.
_UNABLE_STATES = ("08", "25006", "40", "53", "57", "58")


def driver(connection: Connection) -> psycopg.Connection[Any]:
    """Return psycopg's connection below `connection`, in its database transaction.

    For the hot path: SQLAlchemy has neither COPY nor binary rows.
    """
    raw = connection.connection.driver_connection
    assert isinstance(raw, psycopg.Connection)
    return raw


async def driver_async(connection: AsyncConnection) -> psycopg.AsyncConnection[Any]:
    """Do as `driver` does, for an event loop."""
    raw = (await connection.get_raw_connection()).driver_connection
    assert isinstance(raw, psycopg.AsyncConnection)
    return raw


def is_unable(error: Exception) -> bool:
    """Return whether `error` says that PostgreSQL is unavailable, whatever the statement."""
    match error:
        case psycopg.Error(sqlstate=str(state)):
            return state.startswith(_UNABLE_STATES)
        case psycopg.OperationalError():
            return True
        case _:
            return isinstance(error, OperationalError | PoolTimeoutError)


UNAVAILABLE_ERRORS: Final = (
    OperationalError,
    InterfaceError,
    PoolTimeoutError,
    psycopg.OperationalError,
)
"""What SQLAlchemy and psycopg raise when PostgreSQL cannot be reached."""


def message_of(error: Exception) -> str:
    """Return the message of PostgreSQL or its driver, without the statement and its parameters."""
    cause = getattr(error, "orig", None) or error
    # The details of a server's message can quote rows, which hold personal data.
    primary = cause.diag.message_primary if isinstance(cause, psycopg.Error) else None
    return primary or str(cause).strip()


def driver_url(url: str) -> URL:
    """Return `url` with psycopg 3 as its driver."""
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
    work that is repeated after that.
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
    """Register ids with new connections, and test pooled connections at checkout.

    A pooled connection with nothing to read is good, which takes a microsecond to find out; only a
    connection with something to read (mostly its end) is pinged, which takes a round trip.
    """

    def test(connection: DBAPIConnection, entry: ConnectionPoolEntry, _: object) -> None:
        try:
            if _has_something_to_read(entry):
                engine.dialect.do_ping(connection)
        except Exception as error:
            # The other pooled connections were to the same server.
            raise InvalidatePoolError from error

    def register_ids(_: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        assert isinstance(entry.driver_connection, psycopg.Connection | psycopg.AsyncConnection)
        ids.register(entry.driver_connection.adapters)

    event.listen(engine, "connect", register_ids)
    event.listen(engine, "checkout", test)


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
        # `_watch` does this without a round trip for every checkout.
        "pool_pre_ping": False,
        # Parameters are names, amounts and addresses of people, and errors are logged.
        "hide_parameters": True,
        "pool_recycle": 1800,
    }
