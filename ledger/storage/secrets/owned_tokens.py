"""Tokens that name the row they are for: its id, which is not secret, and 256 random bits.

The hash of such a token proves nothing for another row: the id is part of what is hashed, and the
row that has the hash must have the id. So a hash that was copied in the database opens nothing.
Source: docs/decisions/0044-secrets-are-bound.md
"""

import re
import secrets
from typing import Final

from cardledger.schema.ids import Id

_TOKEN: Final = re.compile(r"([0-9a-f]{32})_[A-Za-z0-9_-]{43}", re.ASCII)


def new(owner: Id) -> str:
    """Return a new token for the row with the id `owner`."""
    return f"{owner.hex()}_{secrets.token_urlsafe(32)}"


def owner_in(token: str) -> Id | None:
    """Return the id that `token`, any input, names; None: it names none."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else Id.fromhex(match[1])
