"""Files of documents in a directory: left-over ones are removed, lost ones are reported."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

import structlog
from sqlalchemy import select

from cardledger.ledger.customers.documents import registry as documents
from cardledger.ledger.customers.documents.directory import (
    DirectoryError,
    FileDirectory,
    OldFile,
    remove_paths,
)
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.schema import tables
from cardledger.schema.ids import Id

_PAGE: Final = 1_000

_log = structlog.get_logger()


async def sweep(
    directory: FileDirectory,
    platforms: PlatformConnections,
    *,
    sample: Iterable[Id],
    at: datetime,
) -> int:
    """Remove files that no row names any more, or never has; return how many.

    A 24th of all files is looked at: of each hour another one. Logged is an unusable directory, and
    one without the newest file of a platform of `sample`.
    """
    removed = 0
    try:
        await asyncio.to_thread(directory.check)
        for platform_id in sample:
            await _report_lost(directory, platforms, platform_id)
        for platform_id in await asyncio.to_thread(directory.platforms):
            # Another database may use the directory by mistake: its files are not ours to remove.
            if await _is_ours(platforms, platform_id):
                removed += await _sweep_platform(directory, platforms, platform_id, at)
    except DirectoryError as error:
        _log.error("documents not swept", error=str(error))
    return removed


async def _is_ours(platforms: PlatformConnections, platform_id: Id) -> bool:
    async with platforms.reading(platform_id) as connection:
        found = await connection.scalar(
            select(tables.platforms.c.id).where(tables.platforms.c.id == platform_id)
        )
    return found is not None


async def _report_lost(
    directory: FileDirectory, platforms: PlatformConnections, platform_id: Id
) -> None:
    """Log an error where this process has another directory than those that store files."""
    async with platforms.reading(platform_id) as connection:
        newest = await documents.newest_file(connection, platform_id=platform_id)
    if newest is not None and not await asyncio.to_thread(directory.has, newest):
        _log.error("document not in its directory", document=str(newest.document_id))


async def _sweep_platform(
    directory: FileDirectory, platforms: PlatformConnections, platform_id: Id, at: datetime
) -> int:
    old, removed = directory.old_files(platform_id, at=at), 0
    while page := await asyncio.to_thread(lambda: list(islice(old, _PAGE))):
        left = await _unnamed(page, platforms, platform_id)
        await asyncio.to_thread(remove_paths, [each.path for each in left])
        removed += len(left)
    return removed


async def _unnamed(
    page: Sequence[OldFile], platforms: PlatformConnections, platform_id: Id
) -> Sequence[OldFile]:
    ids = {each.place.document_id for each in page if each.place is not None}
    async with platforms.reading(platform_id) as connection:
        named = await documents.named(connection, platform_id=platform_id, document_ids=sorted(ids))
    kept = set(named)
    return [each for each in page if each.place not in kept]
