"""Engines: connections of this process to PostgreSQL."""

import asyncio
import re
import select
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any, Final

import psycopg
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import IntegrityError, InterfaceError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, Pool, PoolResetState
from sqlalchemy.util import await_only, greenlet_spawn

from cardledger.schema import connections, ids, location

UNNAMED: Final = "cardledger"
"""The name of a connection that has no other one, as PostgreSQL shows it."""

# A hung statement or a lost client must not hold the locks of an account indefinitely. The API
# answers long before these time limits, and a worker retries. A lock that another session holds
# for longer than two seconds is held by mistake: the caller that waits has to retry.
_OPTIONS = (
    "-c timezone=UTC -c statement_timeout=60s -c idle_in_transaction_session_timeout=60s"
    " -c lock_timeout=2s"
)

# The share of this process's limit that the server has for a statement.
_SERVER_SHARE: Final = 0.8

# Every look-up of the hot path is by key. On a small table the planner would choose to scan or
# hash it whole, and keep that plan while the table grows: 4 ms instead of 0.2 ms. Disabled plans
# have a high estimated cost, so the planner would also JIT-compile a statement of a millisecond.
_KEYED = (
    " -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"
    " -c plan_cache_mode=force_generic_plan"
)

_SETTING: Final = re.compile(r"-c (\w+)=(\S+)")

# A connection refused or lost; a read-only standby; a database transaction that was idle or took
# too long; a login refused; a deadlock; no room on the disk or in memory; a lock not available in
# time; a statement cancelled, by its time limit or by an administrator; an I/O error.
_UNABLE_STATES = ("08", "25006", "25P03", "25P04", "28", "40", "53", "55P03", "57", "58")

# A deadlock; a lock not available in time; a statement cancelled.
_HELD_UP_STATES = ("40", "55P03", "57014")

# A connection lost, or ended by the server.
_ENDED_STATES = ("08", "57P")


COMMIT_WITHOUT_FLUSH: Final = "SET LOCAL synchronous_commit TO off"
"""Commit this database transaction without waiting for the disk.

For what may be lost with the server's last moments: a flush delays the commits of others.
"""


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


def is_held_up(error: Exception) -> bool:
    """Return whether a lock, a deadlock or a time limit has ended a statement.

    That is `is_unable`, too; but the rows that the statement is about may be the reason.
    """
    cause = getattr(error, "orig", None) or error
    return isinstance(cause, psycopg.Error) and (cause.sqlstate or "").startswith(_HELD_UP_STATES)


def is_refusal(error: Exception) -> bool:
    """Return whether PostgreSQL has refused a statement that fails again when it is repeated.

    Because of a missing right, for example, or a constraint.
    """
    cause = getattr(error, "orig", None) or error
    return isinstance(cause, psycopg.Error) and bool(cause.sqlstate) and not is_unable(cause)


def is_answer_lost(error: Exception) -> bool:
    """Return whether a statement that was sent may have been committed although it has failed."""
    cause = getattr(error, "orig", None) or error
    if not isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return not cause.sqlstate or cause.sqlstate.startswith(_ENDED_STATES)


def is_cancelled(error: Exception) -> bool:
    """Return whether `error` says that PostgreSQL ended a statement, mostly at its time limit."""
    return isinstance(getattr(error, "orig", None) or error, psycopg.errors.QueryCanceled)


UNAVAILABLE_ERRORS: Final = (
    OperationalError,
    InterfaceError,
    PoolTimeoutError,
    psycopg.OperationalError,
)
"""What SQLAlchemy and psycopg raise when PostgreSQL cannot be reached."""


def constraint_of(error: IntegrityError) -> str | None:
    """Return the name of the constraint or unique index that a row violates."""
    name: str | None = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
    return name


def message_of(error: Exception) -> str:
    """Return the message of PostgreSQL or its driver, without the statement and its parameters."""
    cause = getattr(error, "orig", None) or error
    # The details of a server's message can quote rows, which hold personal data.
    primary = cause.diag.message_primary if isinstance(cause, psycopg.Error) else None
    return primary or str(cause).strip() or type(cause).__name__


def sync_engine(  # noqa: PLR0913 - how connections differ, by name
    url: str,
    *,
    keyed: bool = False,
    waits_for_disk: bool = True,
    application_name: str = UNNAMED,
    settings: str = "",
    reply_limit_s: float | None = connections.REPLY_LIMIT_S,
    **options: Any,  # noqa: ANN401 - handed through
) -> Engine:
    """Return an engine for threads; `keyed` is for connections that only look up by key.

    Without `waits_for_disk` a crash of PostgreSQL may undo the last half second of commits: for
    work that is repeated after that. No statement waits for PostgreSQL longer than `reply_limit_s`
    (`connections`); without it, for work on whole tables, a statement has a minute. `settings`,
    each a `-c name=value`, replace those of every connection.
    """
    losses = _Losses()
    made = _options(url, reply_limit_s, keyed=keyed, waits_for_disk=waits_for_disk)
    made["connect_args"]["application_name"] = application_name
    made["connect_args"]["options"] += f" {settings}"
    engine = create_engine(connections.DRIVER, **made, **_in_pool(options))
    connections.limit_replies(engine, reply_limit_s, losses.note)
    _watch(engine, losses)
    return engine


def async_engine(
    url: str,
    *,
    keyed: bool = False,
    settings: str = "",
    reply_limit_s: float | None = connections.REPLY_LIMIT_S,
    **options: Any,  # noqa: ANN401 - handed through
) -> AsyncEngine:
    """Return an engine for an event loop.

    `keyed`, `settings` and `reply_limit_s` are as in `sync_engine`.
    """
    losses = _Losses()
    made = _options(url, reply_limit_s, keyed=keyed)
    made["connect_args"]["options"] += f" {settings}"
    made["connect_args"]["async_creator_fn"] = partial(
        connections.connect_async, reply_limit_s=reply_limit_s, on_silence=losses.note
    )
    engine = create_async_engine(
        connections.DRIVER, execution_options={_PREPARED: True}, **made, **_in_pool(options)
    )
    _watch(engine.sync_engine, losses)
    return engine


_PREPARED: Final = "cardledger_prepared"

_CONNECT_LIMIT_S: Final = 10.0
"""How long the creator of another engine may take to connect, to all its hosts together."""


def prepared(engine: AsyncEngine, *, schema: str) -> AsyncEngine:
    """Return `engine` if it was made here, else one that connects as `engine` does.

    The connections of another engine are not used: they read UUIDs as `uuid.UUID`, find the tables
    of another PostgreSQL schema and wait without a limit, and its owner wants them so. Those of the
    new engine are opened by the same creator, with all its arguments, and then prepared, with the
    limits of every connection (`connections`); it has a pool of the same size, which its user
    disposes of.
    Raises: TypeError when it is not for event loops, ValueError when its driver is not psycopg.
    """
    if not isinstance(getattr(engine, "sync_engine", None), Engine):
        raise TypeError("the engine must be one of sqlalchemy.ext.asyncio.create_async_engine")
    if engine.sync_engine.get_execution_options().get(_PREPARED):
        return engine
    if (engine.dialect.name, engine.dialect.driver) != ("postgresql", "psycopg"):
        named = f"{engine.dialect.name}+{engine.dialect.driver}"
        raise ValueError(f"the engine must be of postgresql+psycopg, not {named}")
    losses = _Losses()
    made = create_async_engine(
        connections.DRIVER,
        pool=_with_limits(engine.sync_engine.pool.recreate(), losses),
        hide_parameters=True,
        execution_options={_PREPARED: True},
    )
    settings = dict(_SETTING.findall(f"{_OPTIONS}{_KEYED}"))
    settings |= {
        "search_path": location.checked(schema),
        "client_encoding": connections.ENCODING,
        "statement_timeout": f"{connections.REPLY_LIMIT_S * _SERVER_SHARE * 1000:.0f}ms",
    }

    def configure(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        for name, value in settings.items():
            cursor.execute("SELECT set_config(%s, %s, false)", (name, value))
        cursor.close()
        connection.commit()

    event.listen(made.sync_engine, "connect", configure)
    _watch(made.sync_engine, losses)
    return made


def _with_limits(pool: Pool, losses: "_Losses") -> Pool:
    """Return `pool`, for an event loop, with connections that end when the server falls silent.

    They get their limits before SQLAlchemy or a listener of the pool uses them.
    """
    create: Callable[[ConnectionPoolEntry], DBAPIConnection] = pool._invoke_creator  # noqa: SLF001

    async def opened(entry: ConnectionPoolEntry) -> DBAPIConnection:
        try:
            async with asyncio.timeout(_CONNECT_LIMIT_S):
                return await greenlet_spawn(create, entry)
        except TimeoutError:
            raise connections.SilentServerError(
                f"PostgreSQL did not accept a connection within {_CONNECT_LIMIT_S:g} s"
            ) from None

    def connect(rec: ConnectionPoolEntry) -> DBAPIConnection:
        connection = await_only(opened(rec))
        raw = connection.driver_connection
        assert isinstance(raw, psycopg.AsyncConnection)
        connections.limit(raw, reply_limit_s=connections.REPLY_LIMIT_S, on_silence=losses.note)
        return connection

    # SQLAlchemy has no other way to open the connections of an engine again, whichever of its
    # arguments say how.
    pool._creator = connect  # noqa: SLF001
    return pool


class _Losses:
    """When a connection of an engine was last lost to a silent server."""

    def __init__(self) -> None:
        self._last_at = float("-inf")  # On the clock of `monotonic`.

    def note(self) -> None:
        """Note that a connection has just been lost."""
        self._last_at = monotonic()

    def include(self, connected_at: float) -> bool:
        """Return whether a connection of that age was made before the loss."""
        return connected_at <= self._last_at


_CONNECTED_AT: Final = "connected_at"


def _watch(engine: Engine, losses: _Losses) -> None:
    """Register ids with new connections, test pooled ones at checkout, and roll back what is left.

    A pooled connection with nothing to read is good, which takes a microsecond to find out; only a
    connection with something to read (mostly its end) is pinged, which takes a round trip. From a
    silent server there is nothing to read either: the pool is renewed after the first loss, so that
    only those who were waiting for that server pay for finding out.
    """

    def test(connection: DBAPIConnection, entry: ConnectionPoolEntry, _: object) -> None:
        if losses.include(entry.info[_CONNECTED_AT]):
            raise InvalidatePoolError("the server of this connection fell silent")
        try:
            if _has_something_to_read(entry):
                engine.dialect.do_ping(connection)
        except Exception as error:
            # The other pooled connections were to the same server.
            raise InvalidatePoolError from error

    def prepare(_: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        assert isinstance(entry.driver_connection, psycopg.Connection | psycopg.AsyncConnection)
        ids.register(entry.driver_connection.adapters)
        entry.info[_CONNECTED_AT] = monotonic()

    def reset(
        connection: DBAPIConnection, entry: ConnectionPoolEntry, state: PoolResetState
    ) -> None:
        if state.transaction_was_reset or not state.asyncio_safe:
            return
        try:
            connection.rollback()
        except psycopg.OperationalError as error:
            # Statements below SQLAlchemy (`driver`) have lost the connection, and said so; by
            # itself SQLAlchemy would log a traceback for each.
            entry.invalidate(error)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "checkout", test)
    event.listen(engine, "reset", reset)


def _has_something_to_read(entry: ConnectionPoolEntry) -> bool:
    assert entry.driver_connection is not None
    readable = select.poll()
    readable.register(entry.driver_connection.pgconn.socket, select.POLLIN)
    return bool(readable.poll(0))


def _in_pool(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `options`, and have the connection that was used last be the next one.

    It has prepared what the others would have to prepare, and its process of PostgreSQL has plans
    and pages in the processor's cache. Pools of other kinds have no order.
    """
    return options if "poolclass" in options else {"pool_use_lifo": True, **options}


def _options(
    url: str, reply_limit_s: float | None, *, keyed: bool, waits_for_disk: bool = True
) -> dict[str, Any]:
    named = connections.parameters(url)
    # Those of the URL first: they name the PostgreSQL schema, and cannot undo the others.
    settings = f"{named['options']} {_OPTIONS}{_KEYED if keyed else ''}"
    if reply_limit_s is not None:
        # A slow server ends the statement itself, so that no connection is closed over a running
        # one, whose locks would stay until the server notices. (Of a pipeline it limits each
        # statement, this process all together.) Of several limits in `options` the last is valid.
        settings += f" -c statement_timeout={reply_limit_s * _SERVER_SHARE * 1000:.0f}ms"
    return {
        "connect_args": named
        | {
            "options": settings if waits_for_disk else f"{settings} -c synchronous_commit=off",
            "application_name": UNNAMED,
            "prepare_threshold": 2,
        },
        # `_watch` does both: the first without a round trip for every checkout.
        "pool_pre_ping": False,
        "pool_reset_on_return": None,
        # Parameters are names, amounts and addresses of people, and errors are logged.
        "hide_parameters": True,
        "pool_recycle": 1800,
    }
