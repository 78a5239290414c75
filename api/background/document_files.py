"""Files of documents in a directory: left-over ones are removed, lost ones are reported."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final

import structlog
from sqlalchemy import select

from cardledger.ledger.customers.documents import registry as documents
from cardledger.ledger.customers.documents.directory import (
    DirectoryError,
    FileDirectory,
    OldFile,
)
from cardledger.ledger.customers.documents.store import DocumentStore
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.schema import tables
from cardledger.schema.ids import Id

_PAGE: Final = 1_000

_log = structlog.get_logger()


async def sweep(
    store: DocumentStore,
    platforms: PlatformConnections,
    *,
    sample: Iterable[Id],
    at: datetime,
) -> int:
    """Remove files that no row names any more, or never has; return how many.

    A 24th of all files is looked at: of each hour another one. Logged is an unusable directory, and
    one without the newest file of a platform of `sample`.
    """
    try:
        await store.run(FileDirectory.require_own)
        found = await store.run(FileDirectory.platforms)
    except DirectoryError as error:
        _log.error("documents not swept", error=str(error))
        return 0
    try:
        await store.run(lambda directory: directory.remove_old_probes(at=at))
        await store.run(FileDirectory.check)
    except DirectoryError as error:
        # A full disk is one, and removing files is what helps.
        _log.error("documents cannot be stored", error=str(error))
    for platform_id in sample:
        with _logged(platform_id):
            await _report_lost(store, platforms, platform_id)
    removed = 0
    for platform_id in found:
        with _logged(platform_id):
            # Files of platforms of another database are not ours to remove.
            if await _is_ours(platforms, platform_id):
                async for count in _sweep_platform(store, platforms, platform_id, at):
                    removed += count
    return removed


@contextmanager
def _logged(platform_id: Id) -> Iterator[None]:
    """Log what keeps the files of one platform from being looked at, and go on with others."""
    try:
        yield
    except DirectoryError as error:
        _log.error("documents not swept", error=str(error), platform=str(platform_id))


async def _is_ours(platforms: PlatformConnections, platform_id: Id) -> bool:
    async with platforms.reading(platform_id) as connection:
        found = await connection.scalar(
            select(tables.platforms.c.id).where(tables.platforms.c.id == platform_id)
        )
    return found is not None


async def _report_lost(
    store: DocumentStore, platforms: PlatformConnections, platform_id: Id
) -> None:
    """Log an error where this process has another directory than those that store files."""
    async with platforms.reading(platform_id) as connection:
        newest = await documents.newest_file(connection, platform_id=platform_id)
    if newest is not None and not await store.run(lambda directory: directory.has(newest)):
        _log.error("document not in its directory", document=str(newest.document_id))


async def _sweep_platform(
    store: DocumentStore, platforms: PlatformConnections, platform_id: Id, at: datetime
) -> AsyncIterator[int]:
    """Remove the files of a platform that no row names; yield how many, page by page."""
    old = await store.run(lambda directory: directory.old_files(platform_id, at=at))
    while page := await store.run(lambda _: list(islice(old, _PAGE))):
        paths = [each.path for each in await _unnamed(page, platforms, platform_id)]
        await store.run(partial(FileDirectory.remove_paths, paths=paths))
        yield len(paths)


async def _unnamed(
    page: Sequence[OldFile], platforms: PlatformConnections, platform_id: Id
) -> Sequence[OldFile]:
    ids = {each.place.document_id for each in page if each.place is not None}
    async with platforms.reading(platform_id) as connection:
        named = await documents.named(connection, platform_id=platform_id, document_ids=sorted(ids))
    kept = set(named)
    return [each for each in page if each.place not in kept]
