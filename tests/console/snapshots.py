"""Reads as a page of the console does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.snapshot_connections import SnapshotConnections
from cardledger.schema.ids import Id

_Value = TypeVar("_Value")


def in_snapshot(
    config: ApiConfig, platform: Id, read: Callable[[AsyncConnection], Awaitable[_Value]]
) -> _Value:
    """Return what `read` returns on a connection that is limited to `platform`."""

    async def run() -> _Value:
        snapshots = SnapshotConnections(config.database_url)
        try:
            async with snapshots.snapshot(platform) as connection:
                return await read(connection)
        finally:
            await snapshots.dispose()

    return asyncio.run(run())
