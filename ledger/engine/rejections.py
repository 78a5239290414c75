"""Messages that were rejected when they were submitted, kept with their reason."""

from collections.abc import Sequence
from typing import Any, Final

from psycopg import AsyncConnection

from cardledger.ledger.engine.records import RejectionRecord

_INSERT: Final = (
    f"INSERT INTO rejections ({', '.join(RejectionRecord._fields)})"
    f" VALUES ({', '.join(['%s'] * len(RejectionRecord._fields))})"
)


async def keep(connection: AsyncConnection[Any], records: Sequence[RejectionRecord]) -> None:
    """Write `records`; they are kept once the caller has committed."""
    if records:
        async with connection.cursor() as cursor:
            await cursor.executemany(_INSERT, records)
