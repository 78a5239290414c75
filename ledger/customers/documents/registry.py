"""Documents in the record: uploaded, listed, replaced, deleted; read by verifications only.

The file of a document is encrypted with a key of its own, and that with the server key: a rotation
seals the small keys again and no file. It is in PostgreSQL or in a directory (`directory`). No
operation returns a file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers.documents import room
from cardledger.ledger.customers.documents.directory import FilePlace, StoredFile
from cardledger.ledger.customers.documents.room import StorageLimits, charged, submitted_error
from cardledger.ledger.customers.documents.uploaded import CheckedFile
from cardledger.ledger.ports import Evidence
from cardledger.ledger.storage import caps, paging
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import DOCUMENT_KEY, DOCUMENT_NUMBER
from cardledger.ledger.storage.tenancy import own
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import TypedId, public_id
from cardledger.schema.wire.customers.documents import DocumentReplace, DocumentResource

DOCUMENT_LIMIT: Final = 100
"""The most documents of a customer, with those of its beneficial owners."""

RETENTION: Final = timedelta(days=5 * 365 + 1)
"""How long a document that has been submitted is kept after its customer was deleted: five years,
as the rules against money laundering require (Directive (EU) 2015/849, article 40)."""

_DOCUMENTS: Final = tables.documents.c
_CONTENTS: Final = tables.document_contents.c
_USAGE: Final = tables.document_usage.c
_CUSTOMERS: Final = tables.customers.c
_OWNERS: Final = tables.beneficial_owners.c

_SHOWN: Final = select(tables.documents)

_PIECE: Final = 256 * 1024
"""Bytes of a file in one row and one statement.

libpq copies a statement before it sends it, which would keep other requests waiting for a file of
10 MB, and a connection keeps as much memory as its largest statement took.
"""


class UnknownHolderError(Exception):
    """The platform has no such customer or beneficial owner, or has deleted the customer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What was deleted: `count` documents, and `files` to be removed after the commit."""

    count: int = 0
    files: Sequence[FilePlace] = ()


# --- the record --------------------------------------------------------------------------------


async def create(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    holder: TypedId,
    stated: DocumentReplace,
    file: CheckedFile,
    stored: StoredFile | None,
    limits: StorageLimits,
    keys: KeyRing,
    at: datetime,
) -> DocumentResource:
    """Add a document of a customer or of a beneficial owner.

    Its file is in PostgreSQL, or `stored` in the directory under the id that the document gets.
    Raises: UnknownHolderError; CapReachedError, after which the database transaction must be rolled
    back.
    """
    customer_id = await _lock_holder(connection, platform_id, holder)
    await caps.check(
        connection,
        tables.documents,
        platform_id=platform_id,
        customer_id=customer_id,
        limit=DOCUMENT_LIMIT,
        noun="documents",
    )
    key = new_id() if stored is None else stored.place.document_id
    row = {
        "id": key,
        "platform_id": platform_id,
        "customer_id": customer_id,
        "beneficial_owner_id": holder.key if holder.resource == "BeneficialOwner" else None,
        "created_at": at,
        "updated_at": at,
        **_columns(platform_id, key, stated, file, keys),
    }
    await connection.execute(tables.documents.insert().values(**row))
    await connection.execute(
        tables.document_contents.insert().values(
            document_id=key, platform_id=platform_id, **_content(file, stored)
        )
    )
    await _write_pieces(connection, platform_id, key, file, stored)
    await room.take(connection, platform_id, charged(file.size), limits)
    created = await get(connection, platform_id=platform_id, document_id=key, keys=keys)
    assert created is not None
    return created


async def get(
    connection: AsyncConnection, *, platform_id: Id, document_id: Id, keys: KeyRing
) -> DocumentResource | None:
    """Return the platform's document, or None when it has no such document."""
    rows = await connection.execute(
        _SHOWN.where(_DOCUMENTS.id == document_id, _DOCUMENTS.platform_id == platform_id)
    )
    row = rows.one_or_none()
    return None if row is None else _render(row, keys)


async def page(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    holder: TypedId | None,
    wanted: paging.Wanted,
    keys: KeyRing,
) -> paging.Page[DocumentResource]:
    """Return one page of the platform's documents, or of those of a holder.

    Documents of its owners are not a customer's own.
    """
    matching = [_DOCUMENTS.platform_id == platform_id]
    if holder is not None and holder.resource == "BeneficialOwner":
        owner = own(tables.beneficial_owners, holder.key, platform_id=platform_id)
        matching.append(_DOCUMENTS.beneficial_owner_id == owner)
    elif holder is not None:
        matching += [
            _DOCUMENTS.customer_id == own(tables.customers, holder.key, platform_id=platform_id),
            _DOCUMENTS.beneficial_owner_id.is_(None),
        ]
    return await paging.read(
        connection,
        _SHOWN,
        table=tables.documents,
        matching=matching,
        wanted=wanted,
        item=lambda row: _render(row, keys),
    )


async def replace(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    document_id: Id,
    stated: DocumentReplace,
    file: CheckedFile,
    stored: StoredFile | None,
    limits: StorageLimits,
    keys: KeyRing,
    at: datetime,
) -> tuple[DocumentResource | None, Erased]:
    """Replace a document's file and what is stated of it; None: there is no such document.

    The file before is to be removed after the commit.
    Raises: SubmittedError; CapReachedError, after which the database transaction must be rolled
    back.
    """
    row = await _locked(connection, platform_id, document_id)
    if row is None:
        return None, Erased()
    values = _columns(platform_id, document_id, stated, file, keys)
    await connection.execute(
        tables.documents.update()
        .where(_DOCUMENTS.id == document_id)
        .values(updated_at=at, **values)
    )
    before = await _files(connection, platform_id, [document_id])
    await connection.execute(
        tables.document_contents.update()
        .where(_CONTENTS.document_id == document_id)
        .values(**_content(file, stored))
    )
    await _write_pieces(connection, platform_id, document_id, file, stored)
    more = charged(file.size) - charged(row.size)
    await room.take(connection, platform_id, more, limits)
    changed = await get(connection, platform_id=platform_id, document_id=document_id, keys=keys)
    return changed, Erased(files=before)


async def remove(connection: AsyncConnection, *, platform_id: Id, document_id: Id) -> Erased:
    """Delete a document and its file, if the platform has it.

    Raises: SubmittedError.
    """
    if await _locked(connection, platform_id, document_id) is None:
        return Erased()
    return await _erase(connection, platform_id, [document_id])


async def remove_of_customer(
    connection: AsyncConnection, *, platform_id: Id, customer_id: Id, at: datetime
) -> Erased:
    """Delete the documents of a customer that is being deleted, and of its owners.

    What was submitted for a verification is kept for `RETENTION`, and deleted by `remove_due`.
    """
    mine = _DOCUMENTS.customer_id == customer_id
    unused = await connection.scalars(
        select(_DOCUMENTS.id).where(mine, _DOCUMENTS.submitted_at.is_(None))
    )
    erased = await _erase(connection, platform_id, list(unused))
    await connection.execute(
        tables.documents.update().where(mine).values(delete_after=at + RETENTION)
    )
    return erased


async def remove_due(
    connection: AsyncConnection, *, platform_id: Id, at: datetime, limit: int
) -> Erased:
    """Delete documents of deleted customers whose time is over, up to `limit`."""
    due = list(
        await connection.scalars(
            select(_DOCUMENTS.id)
            .where(_DOCUMENTS.platform_id == platform_id, _DOCUMENTS.delete_after <= at)
            .limit(limit)
        )
    )
    return await _erase(connection, platform_id, due)


async def named(
    connection: AsyncConnection, *, platform_id: Id, document_ids: Sequence[Id]
) -> Sequence[FilePlace]:
    """Return the files in the directory that the rows of some documents name."""
    return await _files(connection, platform_id, document_ids)


async def newest_file(connection: AsyncConnection, *, platform_id: Id) -> FilePlace | None:
    """Return the file in the directory of the platform's newest document, if it is there."""
    newest = await connection.scalars(
        select(_DOCUMENTS.id)
        .where(_DOCUMENTS.platform_id == platform_id)
        .order_by(_DOCUMENTS.id.desc())
        .limit(1)
    )
    return next(iter(await _files(connection, platform_id, list(newest))), None)


async def evidence_of(
    connection: AsyncConnection, *, platform_id: Id, customer_id: Id, keys: KeyRing
) -> Sequence[Evidence]:
    """Lock and return the documents of a customer and of its owners, as a verifier sees them.

    None of them is replaced or deleted before the verification has decided.
    """
    rows = await connection.execute(
        _SHOWN.where(_DOCUMENTS.platform_id == platform_id, _DOCUMENTS.customer_id == customer_id)
        .order_by(_DOCUMENTS.id)
        .with_for_update()
    )
    return [
        Evidence(
            id=public_id("Document", row.id),
            holder=_holder(row),
            document_type=row.document_type,
            document_number=_number(row, keys),
        )
        for row in rows.all()
    ]


async def submit_all(connection: AsyncConnection, *, customer_id: Id, at: datetime) -> None:
    """Record that a verification relies on the documents of a customer and of its owners."""
    await connection.execute(
        tables.documents.update()
        .where(_DOCUMENTS.customer_id == customer_id, _DOCUMENTS.submitted_at.is_(None))
        .values(submitted_at=at)
    )


async def _lock_holder(connection: AsyncConnection, platform_id: Id, holder: TypedId) -> Id:
    """Return the customer of `holder`, which is not deleted before the transaction ends.

    Raises: UnknownHolderError.
    """
    customer_id: Id | None = holder.key
    if holder.resource == "BeneficialOwner":
        customer_id = await connection.scalar(
            select(_OWNERS.customer_id).where(
                _OWNERS.id == holder.key, _OWNERS.platform_id == platform_id
            )
        )
    locked_id: Id | None = await connection.scalar(
        select(_CUSTOMERS.id)
        .where(
            _CUSTOMERS.id == customer_id,
            _CUSTOMERS.platform_id == platform_id,
            ~_CUSTOMERS.is_deleted,
        )
        .with_for_update(key_share=True, read=True)
    )
    if locked_id is None:
        raise UnknownHolderError
    return locked_id


async def _locked(
    connection: AsyncConnection, platform_id: Id, document_id: Id
) -> Row[*tuple[Any, ...]] | None:
    """Lock and return a document that may be changed; None: the platform has no such document.

    Raises: SubmittedError.
    """
    rows = await connection.execute(
        select(_DOCUMENTS.size, _DOCUMENTS.submitted_at)
        .where(_DOCUMENTS.id == document_id, _DOCUMENTS.platform_id == platform_id)
        .with_for_update()
    )
    row = rows.one_or_none()
    if row is not None and row.submitted_at is not None:
        raise submitted_error()
    return row


async def _files(
    connection: AsyncConnection, platform_id: Id, document_ids: Sequence[Id]
) -> Sequence[FilePlace]:
    rows = await connection.execute(
        select(_CONTENTS.document_id, _CONTENTS.file_id).where(
            _CONTENTS.platform_id == platform_id,
            _CONTENTS.document_id.in_(document_ids),
            _CONTENTS.file_id.is_not(None),
        )
    )
    return [FilePlace(platform_id, row.document_id, row.file_id) for row in rows.all()]


async def _erase(
    connection: AsyncConnection, platform_id: Id, document_ids: Sequence[Id]
) -> Erased:
    """Delete documents with their files, and count fewer bytes."""
    if not document_ids:
        return Erased()
    files = await _files(connection, platform_id, document_ids)
    await connection.execute(
        delete(tables.document_contents).where(_CONTENTS.document_id.in_(document_ids))
    )
    sizes = await connection.scalars(
        delete(tables.documents).where(_DOCUMENTS.id.in_(document_ids)).returning(_DOCUMENTS.size)
    )
    await connection.execute(
        tables.document_usage.update()
        .where(_USAGE.platform_id == platform_id)
        .values(bytes=_USAGE.bytes - sum(map(charged, sizes)))
    )
    return Erased(count=len(document_ids), files=files)


async def _write_pieces(
    connection: AsyncConnection,
    platform_id: Id,
    document_id: Id,
    file: CheckedFile,
    stored: StoredFile | None,
) -> None:
    """Write what follows the beginning of a file in PostgreSQL.

    A trigger has deleted the pieces of a file that is being replaced.
    """
    if stored is not None:
        return
    for number, start in enumerate(range(_PIECE, len(file.sealed), _PIECE), 1):
        await connection.execute(
            tables.document_pieces.insert().values(
                document_id=document_id,
                number=number,
                platform_id=platform_id,
                content=file.sealed[start : start + _PIECE],
            )
        )


def _content(file: CheckedFile, stored: StoredFile | None) -> dict[str, Any]:
    """Return the columns of a row for a file in PostgreSQL, or for one in the directory."""
    if stored is None:
        return {"content": file.sealed[:_PIECE], "file_id": None, "file_sha256": None}
    return {
        "content": None,
        "file_id": stored.place.file_id,
        "file_sha256": stored.digest,
    }


def _columns(
    platform_id: Id, document_id: Id, stated: DocumentReplace, file: CheckedFile, keys: KeyRing
) -> dict[str, Any]:
    number = stated.document_number
    return {
        "document_type": stated.document_type,
        "side": stated.side,
        "country": stated.country,
        "document_number": None
        if number is None
        else keys.encrypt(number.encode(), DOCUMENT_NUMBER.of(platform_id, document_id)),
        "issuing_authority": stated.issuing_authority,
        "file_name": file.name,
        "media_type": file.media_type,
        "size": file.size,
        "content_key": keys.encrypt(file.key, DOCUMENT_KEY.of(platform_id, document_id)),
    }


def _number(row: Row[*tuple[Any, ...]], keys: KeyRing) -> str | None:
    if row.document_number is None:
        return None
    location = DOCUMENT_NUMBER.of(row.platform_id, row.id)
    return keys.decrypt(row.document_number, location).decode()


def _holder(row: Row[*tuple[Any, ...]]) -> str:
    if row.beneficial_owner_id is not None:
        return public_id("BeneficialOwner", row.beneficial_owner_id)
    return public_id("Customer", row.customer_id)


def _render(row: Row[*tuple[Any, ...]], keys: KeyRing) -> DocumentResource:
    return DocumentResource(
        id=row.id,
        document_holder=_holder(row),
        document_type=row.document_type,
        side=row.side,
        country=row.country,
        document_number=_number(row, keys),
        issuing_authority=row.issuing_authority,
        file_name=row.file_name,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
