"""Deletes what is kept for some time only: documents of deleted customers, ended jobs and links.

Files of documents that are left over in a directory go with them.
"""

import asyncio
from asyncio import Task
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Self

import structlog
from sqlalchemy import ColumnElement, Table, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cardledger.api.background import document_files
from cardledger.ledger.customers import kyc_links
from cardledger.ledger.customers.documents import registry as documents
from cardledger.ledger.customers.documents.directory import FilePlace
from cardledger.ledger.customers.documents.store import DocumentStore
from cardledger.ledger.customers.uploads import registry as uploads
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.workers.client import background

_EVERY_S: Final = 3600.0
_PAGE: Final = 20  # Rows that a database transaction deletes: a document may be large.
_PLATFORMS: Final = 1_000

_log = structlog.get_logger()


class Upkeep:
    """Deletes what is due once an hour, in every API process. An async context manager."""

    def __init__(
        self,
        platforms: PlatformConnections,
        installation: AsyncEngine,
        *,
        files: DocumentStore | None,
        clock: Callable[[], datetime],
        every_s: float = _EVERY_S,
    ) -> None:
        """Find what is due over `installation`, and delete it over `platforms` and from `files`."""
        self._platforms: Final = platforms
        self._installation: Final = installation
        self._clock: Final = clock
        self._every_s: Final = every_s
        self._files: Final = files
        self._unnamed: list[FilePlace] = []  # Files whose rows are about to be deleted.
        self._task: Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await background.end(self._task)

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():
            try:
                await self.step()
            except Exception:  # noqa: BLE001 - the next hour repeats it
                _log.debug("upkeep not done", exc_info=True)
            await asyncio.sleep(self._every_s)

    async def step(self) -> int:
        """Delete everything that is due; return how many rows and left-over files that were."""
        at = self._clock()
        removed = 0
        for table, due, remove in (
            (tables.documents, tables.documents.c.delete_after <= at, self._remove_due),
            (
                tables.customer_uploads,
                tables.customer_uploads.c.completed_at <= at - uploads.RETENTION,
                uploads.remove_old,
            ),
            (
                tables.kyc_links,
                tables.kyc_links.c.expires_at <= at - kyc_links.RETENTION,
                kyc_links.remove_old,
            ),
        ):
            for platform_id in await self._platforms_with(table, due):
                removed += await self._remove(platform_id, remove, at)
        if self._files is not None:
            sample = await self._platforms_with_documents()
            removed += await document_files.sweep(
                self._files, self._platforms, sample=sample, at=at
            )
        return removed

    async def _remove_due(
        self, connection: AsyncConnection, *, platform_id: Id, at: datetime, limit: int
    ) -> int:
        erased = await documents.remove_due(connection, platform_id=platform_id, at=at, limit=limit)
        self._unnamed += erased.files
        return erased.count

    async def _platforms_with(self, table: Table, due: ColumnElement[bool]) -> Sequence[Id]:
        query = select(table.c.platform_id).where(due).distinct().limit(_PLATFORMS)
        async with self._installation.connect() as connection:
            return list(await connection.scalars(query))

    async def _platforms_with_documents(self) -> Sequence[Id]:
        """Return some platforms that have documents, without a look at all of them."""
        some = select(tables.documents.c.platform_id).limit(_PLATFORMS).subquery()
        async with self._installation.connect() as connection:
            return list(await connection.scalars(select(some.c.platform_id).distinct()))

    async def _remove(
        self, platform_id: Id, remove: Callable[..., Awaitable[int]], at: datetime
    ) -> int:
        removed, count = 0, _PAGE
        while count == _PAGE:
            self._unnamed.clear()
            async with self._platforms.writing(platform_id) as connection:
                count = await remove(connection, platform_id=platform_id, at=at, limit=_PAGE)
            if self._files is not None:
                await self._files.remove(self._unnamed)
            removed += count
        return removed
