"""The room for the files of a platform: how many bytes they may have, and how many they have."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import literal, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.caps import CapReachedError
from cardledger.schema import tables
from cardledger.schema.ids import Id

_LEAST_CHARGED: Final = 4 * 1024

_DOCUMENTS: Final = tables.documents.c
_USAGE: Final = tables.document_usage.c


class UnknownDocumentError(Exception):
    """The platform has no such document."""


class SubmittedError(Exception):
    """The document was submitted for a verification, which relies on it: it stays as it is."""


RoomError = UnknownDocumentError | SubmittedError | CapReachedError
"""Why a file is not received: what the operation would say of it, or that it has no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLimits:
    """How many bytes of files a platform may have."""

    bytes_of_platform: int


@dataclass(frozen=True, slots=True)
class Room:
    """How many bytes a file may have, and why one that has more is refused."""

    size: int
    refusal: RoomError


async def check(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    replaced: Id | None,
    size: int,
    limits: StorageLimits,
) -> Room:
    """Return the room for a file of `size` bytes or more, before it is received.

    It takes no lock, so the room may be gone when the file is there. It is for a new document, or
    for the one that is `replaced`.
    Raises: UnknownDocumentError, SubmittedError, CapReachedError when there is no such room.
    """
    used = await connection.scalar(select(_USAGE.bytes).where(_USAGE.platform_id == platform_id))
    left = limits.bytes_of_platform - (used or 0)
    refusal: RoomError = _no_room(limits)
    if replaced is not None:
        rows = await connection.execute(
            select(_DOCUMENTS.size, _DOCUMENTS.submitted_at).where(
                _DOCUMENTS.id == replaced, _DOCUMENTS.platform_id == platform_id
            )
        )
        before = rows.one_or_none()
        if before is None:
            refusal = UnknownDocumentError("the platform has no such document")
        elif before.submitted_at is not None:
            refusal = submitted_error()
        else:
            former = charged(before.size)
            left = max(former, left + former)  # It may be as large as the one before.
    if charged(size) > left:
        raise refusal
    return Room(left, refusal)


async def take(
    connection: AsyncConnection, platform_id: Id, size: int, limits: StorageLimits
) -> None:
    """Count `size` more bytes of files of a platform, if it may have them; fewer it always may.

    Its other uploads wait here for each other until they are committed.
    Raises: CapReachedError.
    """
    new = insert(tables.document_usage).values(platform_id=platform_id, bytes=size)
    used = await connection.scalar(
        new.on_conflict_do_update(
            index_elements=[_USAGE.platform_id],
            set_={"bytes": _USAGE.bytes + size},
            where=or_(literal(size <= 0), _USAGE.bytes + size <= limits.bytes_of_platform),
        ).returning(_USAGE.bytes)
    )
    if used is None or (size > 0 and used > limits.bytes_of_platform):
        raise _no_room(limits)


def charged(size: int) -> int:
    """Return the bytes that a file of `size` counts as: its row takes space, too."""
    return max(size, _LEAST_CHARGED)


def submitted_error() -> SubmittedError:
    """Return the error of a document that was submitted."""
    return SubmittedError("the document was submitted for a verification")


def _no_room(limits: StorageLimits) -> CapReachedError:
    message = (
        f"The documents of the platform have {limits.bytes_of_platform:,} bytes at most;"
        " delete some first."
    )
    return CapReachedError(message, limit=limits.bytes_of_platform)
