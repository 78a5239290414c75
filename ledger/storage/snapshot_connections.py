"""Read-only connections on which all statements of a request see one snapshot of one platform.

For pages that people look at: few connections, which wait for nothing else, and a time limit for
each statement, so that no page takes what the requests of platforms need. A platform has one at a
time: the slow pages of one leave a connection to the others. The server may be a replica.
Source: docs/decisions/0088-console.md
"""

from asyncio import Lock, timeout
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Final
from weakref import WeakValueDictionary

import psycopg
from sqlalchemy import event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.pool import ConnectionPoolEntry

from cardledger.ledger.storage.engines import (
    UNAVAILABLE_ERRORS,
    async_engine,
    driver_async,
    is_cancelled,
)
from cardledger.schema import location, platform_views
from cardledger.schema.ids import Id

STATEMENT_LIMIT_S: Final = 2
"""How long a statement of a page may take."""

PREPARED_LIMIT: Final = 1_000
"""Statements that a connection keeps prepared: many times what all pages have without filters.

Without filters they have about 100, which is psycopg's own limit: with filters in use, each page
would have to prepare its statements again.
"""

_CONNECTIONS: Final = 2
_WAIT_S: Final = 2.0  # For the turn of a platform, and then for a connection.
_LIMIT: Final = text("SELECT set_config('statement_timeout', :limit, true)")
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ;"
    f" SELECT set_config('{platform_views.SETTING}', '%s', true)"
)


class SnapshotProblem(Enum):
    """Why a page could not be read."""

    BUSY = auto()
    """Other pages had the connections."""
    SLOW = auto()
    """PostgreSQL ended a statement, mostly at its time limit."""
    AWAY = auto()
    """PostgreSQL, or the replica, does not answer."""


class SnapshotError(Exception):
    """A page could not be read; this says nothing of the connections of the API."""

    def __init__(self, problem: SnapshotProblem) -> None:
        """Say what the problem was."""
        super().__init__(problem.name)
        self.problem: Final = problem


class SnapshotConnections:
    """A pool of two connections, each limited to a platform while it is used."""

    def __init__(self, url: str) -> None:
        """Connect to `url`, to its views first."""
        path = platform_views.search_path(location.name_in(url))
        self._engine: Final = async_engine(
            url,
            keyed=True,
            settings=(
                f"-c search_path={path} -c default_transaction_read_only=on"
                f" -c statement_timeout={STATEMENT_LIMIT_S}s -c max_parallel_workers_per_gather=0"
            ),
            pool_size=_CONNECTIONS,
            max_overflow=0,
            pool_timeout=_WAIT_S,
            isolation_level="AUTOCOMMIT",  # `snapshot` sends its own BEGIN.
        )
        event.listen(self._engine.sync_engine, "connect", _keep_prepared)
        self._turns: Final[WeakValueDictionary[Id, Lock]] = WeakValueDictionary()

    async def dispose(self) -> None:
        """Close the connections that are not in use."""
        await self._engine.dispose()

    @asynccontextmanager
    async def snapshot(self, platform_id: Id) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a read-only database transaction with one snapshot.

        Raises: SnapshotError, also for what the block has read.
        """
        async with self._turn(platform_id):
            try:
                async with self._engine.begin() as connection:
                    driver = await driver_async(connection)
                    # Both in one round trip, which psycopg's own BEGIN would take, too.
                    await driver.execute((_BEGIN % platform_id).encode(), prepare=False)
                    yield connection
            except UNAVAILABLE_ERRORS as error:
                raise SnapshotError(_problem(error)) from error

    @asynccontextmanager
    async def _turn(self, platform_id: Id) -> AsyncIterator[None]:
        turn = self._turns.setdefault(platform_id, Lock())
        try:
            async with timeout(_WAIT_S):
                await turn.acquire()
        except TimeoutError as error:
            raise SnapshotError(SnapshotProblem.BUSY) from error
        try:
            yield
        finally:
            turn.release()


def _keep_prepared(_: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
    assert isinstance(entry.driver_connection, psycopg.AsyncConnection)
    entry.driver_connection.prepared_max = PREPARED_LIMIT


@asynccontextmanager
async def limited(connection: AsyncConnection, limit_ms: int) -> AsyncIterator[None]:
    """Limit the time of statements in the block; a cancelled one ends nothing but the block.

    Shape: `connection` is one of `snapshot`; the block raises the errors of its statements.
    """
    nested = await connection.begin_nested()
    try:
        await _limit(connection, f"{limit_ms}ms")
        yield
        await _limit(connection, f"{STATEMENT_LIMIT_S}s")
    except BaseException:
        await nested.rollback()  # And with it the limit.
        raise
    # Not by a roll-back: after one, psycopg prepares all statements of the connection again.
    await nested.commit()


async def _limit(connection: AsyncConnection, limit: str) -> None:
    await connection.execute(_LIMIT, {"limit": limit})


def _problem(error: Exception) -> SnapshotProblem:
    if isinstance(error, PoolTimeoutError):
        return SnapshotProblem.BUSY
    return SnapshotProblem.SLOW if is_cancelled(error) else SnapshotProblem.AWAY
