"""The lock of the dispatch: who holds it, and that none begins."""

from typing import Any, Final

import psycopg
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.engines import driver_async

DISPATCH_LOCK: Final = 0x77656268
"""Advisory lock of the database transaction that dispatches."""

_IS_OVER: Final = "SELECT pg_try_advisory_xact_lock_shared(%s)"


def is_over(driver: psycopg.Connection[Any]) -> bool:
    """Return whether no dispatch is under way, and let none begin in this database transaction.

    The next statement sees the deliveries of every dispatch that read an endpoint before now.
    """
    row = driver.execute(_IS_OVER, [DISPATCH_LOCK]).fetchone()
    assert row is not None
    return bool(row[0])


_UNDER_WAY: Final = """
    SELECT virtualtransaction FROM pg_locks
    WHERE locktype = 'advisory' AND classid = 0 AND objid = %s AND objsubid = 1 AND granted
        AND mode = 'ExclusiveLock'
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


async def under_way(connection: AsyncConnection) -> str | None:
    """Return the database transaction that dispatches now, or None.

    A lock is released after its transaction has become visible: once this is another one, what the
    first has dispatched can be read. Waiting for the lock would take a connection meanwhile.
    """
    driver = await driver_async(connection)
    row = await (await driver.execute(_UNDER_WAY, [DISPATCH_LOCK])).fetchone()
    return None if row is None else str(row[0])
