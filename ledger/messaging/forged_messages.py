"""Messages that were taken out of the inbox undecided, because their MAC was wrong or missing."""

from datetime import datetime, timedelta
from typing import Any, Final

from psycopg import AsyncConnection

from cardledger.ledger.storage.ids import first_id_at

REPORTED_FOR: Final = timedelta(days=1)
COUNT_LIMIT: Final = 1_000

# Refusals have ids that begin with their time.
_RECENT: Final = """
    SELECT count(*) FROM (SELECT FROM forged_messages WHERE id >= %s LIMIT %s) recent
"""


async def recent(connection: AsyncConnection[Any], now: datetime) -> int:
    """Return how many were refused in the day before `now`; at most 1,000 are counted."""
    cursor = await connection.execute(_RECENT, [first_id_at(now - REPORTED_FOR), COUNT_LIMIT])
    row = await cursor.fetchone()
    assert row is not None, "an aggregate has a row"
    count: int = row[0]
    return count
