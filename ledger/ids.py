"""Identifiers: UUIDv7, made by the application, in order of creation within a process."""

from typing import Final
from uuid import UUID

from uuid_utils.compat import uuid7

NIL: Final = UUID(int=0)
"""Nobody: the home of a message whose card is unknown."""

# The sandbox gives meaning to these last three characters; a random id must not have it.
_MAGIC: Final = frozenset({0x001, 0x002, 0x003, 0x004, 0x005, 0x006})
_LAST_THREE: Final = 0xFFF


def new_id() -> UUID:
    """Return a new identifier that rises with time and has no magic suffix."""
    while True:
        key = uuid7()
        if key.int & _LAST_THREE not in _MAGIC:
            return key
