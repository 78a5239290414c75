"""Read-only connections on which all statements of a request see one snapshot of one platform.

For pages that people look at: few connections, which wait for nothing else, and a time limit for
each statement, so that no page takes what the requests of platforms need. The server may be a
replica.
Source: docs/decisions/0088-console.md
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.engines import async_engine, driver_async
from cardledger.schema import location, platform_views
from cardledger.schema.ids import Id

STATEMENT_LIMIT_S: Final = 2
"""How long a statement of a page may take."""

_CONNECTIONS: Final = 2
_WAIT_S: Final = 2.0  # For a connection.
_SET: Final = f"SELECT set_config('{platform_views.SETTING}', %s, true)"


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
            isolation_level="REPEATABLE READ",
        )

    async def dispose(self) -> None:
        """Close the connections that are not in use."""
        await self._engine.dispose()

    @asynccontextmanager
    async def snapshot(self, platform_id: Id) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a read-only database transaction with one snapshot."""
        async with self._engine.begin() as connection:
            driver = await driver_async(connection)
            await driver.execute(_SET, [str(platform_id)])
            yield connection
