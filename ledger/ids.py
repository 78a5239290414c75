"""Identifiers: UUIDv7, made by the application, in order of creation within a process."""

from typing import Final
from uuid import UUID, SafeUUID

from uuid_utils import uuid7

NIL: Final = UUID(int=0)
"""Nobody: the home of a message whose card is unknown."""

# The sandbox gives meaning to these last three characters; a random id must not have it.
_MAGIC: Final = frozenset({0x001, 0x002, 0x003, 0x004, 0x005, 0x006})
_LAST_THREE: Final = 0xFFF

_SAFETY: Final = SafeUUID.unknown


def new_id() -> UUID:
    """Return a new identifier that rises with time and has no magic suffix."""
    while (number := uuid7().int) & _LAST_THREE in _MAGIC:
        pass
    # As `UUID(int=number)` without its checks: every event of the ledger makes some.
    key = object.__new__(UUID)
    object.__setattr__(key, "int", number)
    object.__setattr__(key, "is_safe", _SAFETY)
    return key
