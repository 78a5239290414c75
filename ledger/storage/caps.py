"""Caps: how many rows of a kind a platform may have, exactly, whatever it requests at once."""

from typing import Final

from sqlalchemy import ColumnElement, Table, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.schema.ids import Id

# One lock for each table and platform: requests of others do not wait.
_LOCK: Final = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")


class CapReachedError(Exception):
    """There are as many as there may be, `limit`; nothing was written."""

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message)
        self.limit: Final = limit


async def lock(connection: AsyncConnection, table: Table, platform_id: Id) -> None:
    """Let no other transaction add rows of the platform to `table` until the caller's ends."""
    await connection.execute(_LOCK, {"name": f"{table.name}/{platform_id}"})


async def check(
    connection: AsyncConnection,
    table: Table,
    *conditions: ColumnElement[bool],
    platform_id: Id,
    limit: int,
    noun: str,
) -> None:
    """Check that the platform has fewer than `limit` rows of `table` that meet `conditions`.

    Until the caller's database transaction ends, no other passes this check for the same platform
    and table. At most `limit` rows are counted.
    Raises: CapReachedError, with `noun` in its message.
    """

    async def check_count() -> None:
        own = select(table.c.id).where(table.c.platform_id == platform_id, *conditions).limit(limit)
        if await connection.scalar(select(func.count()).select_from(own.subquery())) == limit:
            message = f"The platform has {limit:,} {noun}, the maximum; delete one first."
            raise CapReachedError(message, limit=limit)

    await check_count()  # At the cap, requests are refused without waiting for each other.
    await lock(connection, table, platform_id)
    # A statement of its own, after the lock: it sees what the previous holder has committed.
    await check_count()
