"""Connections to PostgreSQL that end when the server falls silent.

A server that crashes closes its connections, and its clients notice at once. A host that is
fenced, an address that has moved and a pooler that hangs close nothing: without limits a statement
waits for two hours. Every connection of this package is opened with three limits.

- Connecting: `connect_timeout`, for each host of the URL.
- A network that acknowledges nothing: TCP keepalives, and `tcp_user_timeout` for data on its way.
- A peer that acknowledges and does not answer: `reply_limit_s`, for each statement, each pipeline
  of statements, and COMMIT.

The URL is libpq's, and only libpq parses it: it may name several hosts and `target_session_attrs`,
and its own values of the first two limits win.
Source: docs/decisions/0030-time-limits.md
"""

import os
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine, event
from sqlalchemy.pool import ConnectionPoolEntry
from typing_extensions import override

from cardledger.schema import location

REPLY_LIMIT_S: Final = 5.0
"""How long a short statement may take: many times what the slowest of them needs."""

DRIVER: Final = "postgresql+psycopg://"
"""The URL for SQLAlchemy, which chooses the driver; `parameters` say where to connect."""

# A silent network is given up after 4 + 3 * 2 seconds without traffic, and after 10 seconds with
# data that is not acknowledged.
_DEFAULTS: Final[dict[str, int]] = {
    "connect_timeout": 5,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

# What libpq sets on a socket for its parameters, where the operating system has it.
_SOCKET_OPTIONS: Final = {
    "keepalives_idle": "TCP_KEEPIDLE",
    "keepalives_interval": "TCP_KEEPINTVL",
    "keepalives_count": "TCP_KEEPCNT",
    "tcp_user_timeout": "TCP_USER_TIMEOUT",
}

# Bulk writes send texts in it, whatever the URL or the environment says.
ENCODING: Final = "UTF8"

_CANCEL_LIMIT_S: Final = 1.0

_Row = TypeVar("_Row")


class SilentServerError(psycopg.OperationalError):
    """The server did not answer in time and the connection is closed.

    Whether the statement took effect is unknown; a COMMIT may have.
    """


def parameters(url: str) -> dict[str, Any]:
    """Return the parameters of libpq for `url`, with our limits where it names none.

    Its `options` name the PostgreSQL schema of the tables (`location`).
    Raises: psycopg.ProgrammingError when `url` is not valid.
    """
    _, _, rest = location.with_default(url).partition("://")
    named = conninfo_to_dict(f"postgresql://{rest}")
    return _DEFAULTS | named | {"client_encoding": ENCODING}


def connect(
    url: str,
    *,
    reply_limit_s: float | None = REPLY_LIMIT_S,
    autocommit: bool = False,
    **instead: str,
) -> "LimitedConnection[tuple[Any, ...]]":
    """Connect to `url`, with parameters of libpq `instead` of those in it.

    Without `reply_limit_s` its statements may take as long as they need.
    Raises: psycopg.Error.
    """
    connection = LimitedConnection.connect(autocommit=autocommit, **(parameters(url) | instead))
    connection.reply_limit_s = reply_limit_s
    return connection


def limit_replies(
    engine: Engine, reply_limit_s: float | None, on_silence: Callable[[], None]
) -> None:
    """Have `engine`, for threads, open connections with a limit; see `LimitedConnection`."""

    def connect(
        _dialect: object,
        _entry: ConnectionPoolEntry,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> LimitedConnection[Any]:
        connection = LimitedConnection.connect(*arguments, **named)
        connection.reply_limit_s = reply_limit_s
        connection.on_silence = on_silence
        return connection

    event.listen(engine, "do_connect", connect)


async def connect_async(
    *arguments: Any,  # noqa: ANN401 - handed through
    reply_limit_s: float | None,
    on_silence: Callable[[], None],
    **named: Any,  # noqa: ANN401 - handed through
) -> "LimitedAsyncConnection[Any]":
    """Connect as SQLAlchemy asks for it: the `async_creator_fn` of an engine for an event loop."""
    connection = await LimitedAsyncConnection.connect(*arguments, **named)
    connection.reply_limit_s = reply_limit_s
    connection.on_silence = on_silence
    return connection


def limit(
    connection: psycopg.AsyncConnection[Any],
    *,
    reply_limit_s: float,
    on_silence: Callable[[], None],
) -> None:
    """Give `connection`, which others have opened, the limits of `connect_async`.

    For a connection that is ours from now on: those who opened it have no use for it. Parameters
    of libpq that they have named win.
    """
    if not isinstance(connection, LimitedAsyncConnection):
        # psycopg calls `wait` of the connection, and has no other way to limit all replies.
        connection.__class__ = _limited(type(connection))
    assert isinstance(connection, LimitedAsyncConnection)
    connection.reply_limit_s = reply_limit_s
    connection.on_silence = on_silence
    _limit_socket(connection)


def _limited(made: type[psycopg.AsyncConnection[Any]]) -> type[psycopg.AsyncConnection[Any]]:
    """Return the class of connections that does as `made` does, with limits."""
    if made is psycopg.AsyncConnection:
        return LimitedAsyncConnection
    return type(made.__name__, (LimitedAsyncConnection, made), {})


def _limit_socket(connection: psycopg.AsyncConnection[Any]) -> None:
    named = connection.info.get_parameters()
    # A copy of the descriptor: closing it leaves the connection open.
    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as link:
        if link.family not in {socket.AF_INET, socket.AF_INET6}:
            return
        for parameter, name in _SOCKET_OPTIONS.items():
            option: int | None = getattr(socket, name, None)
            if option is not None and parameter not in named:
                link.setsockopt(socket.IPPROTO_TCP, option, _DEFAULTS[parameter])


def _ignore() -> None:
    pass


class LimitedConnection(psycopg.Connection[_Row]):
    """A connection for threads on which no wait for the server exceeds `reply_limit_s`.

    A connection that has waited that long is closed, `on_silence` is called, and the statement
    raises SilentServerError.
    """

    reply_limit_s: float | None = None
    on_silence: Callable[[], None] = staticmethod(_ignore)

    @override
    def wait(self, gen: PQGen[RV], *arguments: Any, **named: Any) -> RV:
        if self.reply_limit_s is None:
            return super().wait(gen, *arguments, **named)
        try:
            return super().wait(_in_time(gen, self.reply_limit_s), *arguments, **named)
        except SilentServerError:
            self.pgconn.finish()  # Nothing waits for the server: the socket does not block.
            self.on_silence()
            raise


class LimitedAsyncConnection(psycopg.AsyncConnection[_Row]):
    """Does as `LimitedConnection` does, for an event loop.

    A task that is cancelled cancels its statement, for which a silent server gets a second.
    """

    reply_limit_s: float | None = None
    on_silence: Callable[[], None] = staticmethod(_ignore)

    @override
    async def wait(self, gen: PQGen[RV], *arguments: Any, **named: Any) -> RV:
        if self.reply_limit_s is None:
            return await super().wait(gen, *arguments, **named)
        try:
            return await super().wait(_in_time(gen, self.reply_limit_s), *arguments, **named)
        except SilentServerError:
            self.pgconn.finish()
            self.on_silence()
            raise

    @override
    async def cancel_safe(self, *, timeout: float = _CANCEL_LIMIT_S) -> None:
        await super().cancel_safe(timeout=min(timeout, _CANCEL_LIMIT_S))


def _in_time(gen: PQGen[RV], limit_s: float) -> PQGen[RV]:
    """Do as `gen` does, and raise SilentServerError when it has not ended after `limit_s`.

    psycopg resumes a generator whenever the socket is ready, and ten times a second in any case.
    What has arrived is read before the limit counts: this process may have been the slow one.
    """
    deadline = monotonic() + limit_s
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            wanted = gen.send(ready)
            if monotonic() > deadline:
                raise SilentServerError(
                    f"PostgreSQL did not answer within {limit_s:g} s; the connection is closed"
                )
    except StopIteration as end:
        result: RV = end.value
        return result
