"""Connections of the API on which statements see and write the rows of one platform only.

Which platform that is, a setting says: the views that come before the tables on the search path
compare each row with it. It is set for the session by reads, so that the next request of the same
platform finds it, and otherwise for a database transaction.
Source: docs/decisions/0052-platform-views.md
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.engines import async_engine, driver_async
from cardledger.schema import location, platform_views
from cardledger.schema.ids import Id

_SET: Final = f"SELECT set_config('{platform_views.SETTING}', %s, %s)"
_PLATFORM: Final = "platform_id"

# The query of one request is not to take the processors that others' requests need.
_SETTINGS: Final = "-c max_parallel_workers_per_gather=0"


class PlatformConnections:
    """A pool of connections, each limited to a platform while it is used."""

    def __init__(self, url: str, **options: Any) -> None:  # noqa: ANN401 - handed through
        """Connect to `url`, to its views first; `options` are those of `async_engine`."""
        path = platform_views.search_path(location.name_in(url))
        settings = f"-c search_path={path} {_SETTINGS}"
        self._engine: Final = async_engine(url, settings=settings, **options)
        self._autocommit: Final = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    async def dispose(self) -> None:
        """Close the connections that are not in use."""
        await self._engine.dispose()

    @asynccontextmanager
    async def reading(self, platform_id: Id) -> AsyncIterator[AsyncConnection]:
        """Yield a connection on which every statement is a database transaction of its own."""
        async with self._autocommit.connect() as connection:
            if connection.info.get(_PLATFORM) != platform_id:
                connection.info.pop(_PLATFORM, None)  # A cancelled statement may take effect.
                await _limit(connection, platform_id, is_local=False)
                connection.info[_PLATFORM] = platform_id
            yield connection

    @asynccontextmanager
    async def writing(self, platform_id: Id) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a database transaction that commits at the end of the block."""
        async with self._engine.begin() as connection:
            if connection.info.get(_PLATFORM) != platform_id:
                # For this transaction only: a roll-back would restore the platform before.
                await _limit(connection, platform_id, is_local=True)
            yield connection


async def _limit(connection: AsyncConnection, platform_id: Id, *, is_local: bool) -> None:
    driver = await driver_async(connection)
    await driver.execute(_SET, [str(platform_id), is_local])
