"""Identifiers: UUIDv7, made by the application, in order of creation within a process."""

from uuid_utils import uuid7

from cardledger.schema.ids import Id


def new_id() -> Id:
    """Return a new identifier that increases with time and does not have a reserved ending."""
    while _is_reserved(key := uuid7().bytes):
        pass
    return Id(key)


def _is_reserved(key: bytes) -> bool:
    """Return whether the last three digits are 001 to 006, which only chosen ids may have."""
    return not key[14] & 0x0F and 1 <= key[15] <= 6  # noqa: PLR2004 - the above
