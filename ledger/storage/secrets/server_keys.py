"""What each server key of the installation is known to hold: the key of card numbers.

Card numbers are derived from a key that outlives the server key it was first derived from: the
card key is sealed with every later server key. Source: docs/decisions/0014, 0044.
"""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.secrets.key_ring import KeyRing, Location
from cardledger.schema import tables

_COLUMNS: Final = tables.server_keys.c


async def load_card_key(connection: AsyncConnection, keys: KeyRing) -> None:
    """Let `keys` derive card numbers as they were before the server key was rotated.

    Raises: SecretsError when the stored key was changed.
    """
    rows = await connection.execute(
        select(_COLUMNS.header, _COLUMNS.card_key).where(_COLUMNS.header.in_(keys.headers))
    )
    adopt_card_key(keys, ((row.header, row.card_key) for row in rows))


def adopt_card_key(keys: KeyRing, rows: Iterable[tuple[bytes, bytes]]) -> None:
    """Let `keys` derive card numbers with the stored key, if one of `rows` (header, key) has it.

    Without a row, no rotation has been completed: the oldest key of `keys` derives them.
    Raises: SecretsError when the stored key was changed.
    """
    stored = dict(rows)
    for header in keys.headers:  # The current key first; each holds the same card key.
        if header in stored:
            keys.adopt_card_key(keys.decrypt(stored[header], _location(header)))
            return


def sealed_card_key(keys: KeyRing) -> bytes:
    """Return the card key of `keys` to be stored for their current server key."""
    return keys.encrypt(keys.card_key, _location(keys.header))


def _location(header: bytes) -> Location:
    return Location("server_keys", "card_key", bytes(16), header)
