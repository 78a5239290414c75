"""Reads as a page of the console does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.app import ApiConfig
from cardledger.ledger.storage.snapshot_connections import SnapshotConnections
from cardledger.schema.ids import Id

_Value = TypeVar("_Value")


def note_statements(connection: AsyncConnection) -> list[str]:
    """Return the list to which the texts of what `connection` executes from now on are added."""
    noted: list[str] = []

    def note(*arguments: Any) -> None:  # noqa: ANN401 - of SQLAlchemy
        noted.append(arguments[2])

    event.listen(connection.sync_connection, "before_cursor_execute", note)
    return noted


def look_at_snapshots(
    monkeypatch: pytest.MonkeyPatch, look: Callable[[AsyncConnection], Awaitable[None]]
) -> None:
    """Have `look` called with the connection of every page, before the page reads."""
    real = SnapshotConnections.snapshot

    @asynccontextmanager
    async def looked_at(self: SnapshotConnections, platform: Id) -> AsyncIterator[AsyncConnection]:
        async with real(self, platform) as connection:
            await look(connection)
            yield connection

    monkeypatch.setattr(SnapshotConnections, "snapshot", looked_at)


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
