"""Caps: how many rows of a kind a platform or a customer may have, exactly, under any load."""

from typing import Final

from sqlalchemy import ColumnElement, Table, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.schema.ids import Id

# One lock for each table and owner: requests of others do not wait.
_LOCK: Final = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
_SHARED_LOCK: Final = text("SELECT pg_advisory_xact_lock_shared(hashtextextended(:name, 0))")


class CapReachedError(Exception):
    """There are as many as there may be, `limit`; nothing was written."""

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message)
        self.limit: Final = limit


async def lock(connection: AsyncConnection, table: Table, owner_id: Id) -> None:
    """Let no other transaction add rows of the owner to `table` until the caller's ends."""
    await connection.execute(_LOCK, {"name": f"{table.name}/{owner_id}"})


async def lock_shared(connection: AsyncConnection, table: Table, owner_id: Id) -> None:
    """Let no other transaction `lock` these rows until the caller's ends; others may do the same.

    One that waits for `lock` is before those that come later: they cannot keep it waiting.
    """
    await connection.execute(_SHARED_LOCK, {"name": f"{table.name}/{owner_id}"})


async def check(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    table: Table,
    *conditions: ColumnElement[bool],
    platform_id: Id,
    limit: int,
    noun: str,
    customer_id: Id | None = None,
    advice: str = "; delete one first",
    with_lock: bool = True,
) -> None:
    """Check that the platform has fewer than `limit` rows of `table` that meet `conditions`.

    With `customer_id` it is the customer who may have so many. Until the caller's database
    transaction ends, no other passes this check for the same owner and table; not so without the
    lock, which is for a look before work that may be in vain. At most `limit` rows are counted.
    Raises: CapReachedError, with `noun` in its message.
    """
    owner = "platform" if customer_id is None else "customer"
    of_owner = [table.c.platform_id == platform_id]
    of_owner += [] if customer_id is None else [table.c.customer_id == customer_id]

    async def check_count() -> None:
        own = select(table.c.id).where(*of_owner, *conditions).limit(limit)
        if await connection.scalar(select(func.count()).select_from(own.subquery())) == limit:
            message = f"The {owner} has {limit:,} {noun}, the maximum{advice}."
            raise CapReachedError(message, limit=limit)

    await check_count()  # At the cap, requests are refused without waiting for each other.
    if not with_lock:
        return
    await lock(connection, table, customer_id or platform_id)
    # A statement of its own, after the lock: it sees what the previous holder has committed.
    await check_count()
