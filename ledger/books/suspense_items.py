"""Items of suspense, for those who list the messages that they come from."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection

from cardledger.schema.ids import Id


@dataclass(frozen=True, slots=True)
class Suspended:
    """What a message has moved and what stands in SUSPENSE: minor units of `currency`."""

    amount: int
    currency: str

    def as_dict(self) -> dict[str, int | str]:
        """Return it as JSON."""
        return {"amount": self.amount, "currency": self.currency}


_OPEN: Final = """
    SELECT id, amount, currency FROM suspense_items WHERE id = ANY(%s) AND resolved_at IS NULL
"""


async def open_among(connection: AsyncConnection[Any], ids: Collection[Id]) -> dict[Id, Suspended]:
    """Return what the messages with `ids` have in SUSPENSE, by their ids.

    A repetition has nothing there: its money stands there once, under the first message.
    """
    cursor = await connection.execute(_OPEN, [list(ids)])
    return {key: Suspended(amount, currency) async for key, amount, currency in cursor}
