"""A connection that has carried a large document is closed, and any other is used again."""

import asyncio
from contextlib import suppress

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.platform_connections import PlatformConnections, end_after_use

PLATFORM = new_id()


async def backend(connection: AsyncConnection) -> int:
    return int(await connection.scalar(text("SELECT pg_backend_pid()")))


def test_a_connection_ends_after_the_transaction_that_says_so(
    app_database_url: DatabaseUrl,
) -> None:
    async def pids() -> list[int]:
        found = []
        platforms = PlatformConnections(app_database_url, keyed=True, pool_size=1, max_overflow=0)
        try:
            async with platforms.writing(PLATFORM) as connection:
                found.append(await backend(connection))
            async with platforms.writing(PLATFORM) as connection:
                found.append(await backend(connection))
                end_after_use(connection)
            with suppress(LookupError):
                async with platforms.writing(PLATFORM) as connection:
                    found.append(await backend(connection))
                    end_after_use(connection)
                    raise LookupError
            async with platforms.reading(PLATFORM) as connection:
                found.append(await backend(connection))
        finally:
            await platforms.dispose()
        return found

    first, second, third, fourth = asyncio.run(pids())

    assert first == second
    assert len({second, third, fourth}) == 3
