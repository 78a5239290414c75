"""The messages that book what files of networks and statements of the bank say.

The engine takes what is booked from the row in `settlement_bookings`; a message only names it.
"""

from collections.abc import Sequence
from typing import Any, Final

from psycopg import AsyncConnection

from cardledger.ledger.messaging import inbox
from cardledger.schema.ids import Id

SOURCE: Final = "settlements"
"""The source of the messages."""


def body_of(key: Id) -> dict[str, Any]:
    """Return the body of the message of the booking `key`: the same by whichever process."""
    return {
        "type": inbox.SETTLEMENT_BOOKING,
        "source": SOURCE,
        "reference": str(key),
        "bookingId": str(key),
    }


def named_in(body: object) -> Id | None:
    """Return the booking whose message `body` is, exactly; None for anything else."""
    key = body.get("bookingId") if isinstance(body, dict) else None
    try:
        found = Id.parse(key) if isinstance(key, str) else None
    except ValueError:
        return None
    return found if found is not None and body == body_of(found) else None


_DUE: Final = """
    SELECT id, platform_id FROM settlement_bookings WHERE id = ANY(%s) AND booked_at IS NULL
"""


async def platforms_of_due(connection: AsyncConnection[Any], ids: Sequence[Id]) -> dict[Id, Id]:
    """Return the platforms of those of the bookings `ids` that are not booked yet."""
    if not ids:
        return {}
    cursor = await connection.execute(_DUE, [list(ids)])
    return {key: platform_id async for key, platform_id in cursor}
