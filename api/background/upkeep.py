"""Deletes what is kept for some time only: documents of deleted customers, ended jobs and links.

Files of documents that are left over in a directory go with them.
"""

import asyncio
from asyncio import Task
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
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
from cardledger.ledger.storage.engines import is_held_up, is_unable, message_of
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.workers.client import background

_EVERY_S: Final = 3600.0
_PAGE: Final = 20  # Rows that a database transaction deletes: a document may be large.
_PLATFORMS: Final = 1_000
_TURN_S: Final = 5.0  # Of a platform, before it is the turn of others.
_STEP_S: Final = _EVERY_S / 2  # Of all; a backlog goes on with the next step.

Remove = Callable[..., Awaitable[int]]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Due:
    """Rows of one platform that are due, in the table `what`."""

    what: str
    platform_id: Id
    remove: Remove


class Upkeep:
    """Deletes what is due once an hour, in every API process. An async context manager.

    The platforms take turns, and what fails for one of them keeps none of another.
    """

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
            except Exception as error:  # noqa: BLE001 - the next hour repeats it
                _log.warning("upkeep not done", error=message_of(error))
            await asyncio.sleep(self._every_s)

    async def step(self) -> int:
        """Delete what is due; return how many rows and left-over files that were."""
        at, removed = self._clock(), 0
        waiting, deadline = await self._due(at), monotonic() + _STEP_S
        while waiting and monotonic() < deadline:
            turns, waiting = waiting, []
            for due in turns:
                if monotonic() >= deadline:
                    break  # The next step goes on: what is slow may be slow for all.
                count, is_over = await self._turn(due, at)
                removed += count
                waiting += [] if is_over else [due]
        if self._files is not None:
            sample = await self._platforms_with_documents()
            removed += await document_files.sweep(
                self._files, self._platforms, sample=sample, at=at
            )
        return removed

    async def _due(self, at: datetime) -> list[_Due]:
        found = []
        for table, is_due, remove in (
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
            platform_ids = await self._platforms_with(table, is_due)
            found += [_Due(table.name, platform_id, remove) for platform_id in platform_ids]
        return found

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

    async def _turn(self, due: _Due, at: datetime) -> tuple[int, bool]:
        """Delete pages of `due` rows in the turn of a platform.

        Returns how many rows that were, and whether it is over: none is left, or one cannot be
        deleted.
        """
        removed, deadline = 0, monotonic() + _TURN_S
        while True:
            try:
                count = await self._page(due, at)
            except Exception as error:
                if is_unable(error) and not is_held_up(error):
                    raise  # It would fail for the others as well.
                message, platform = message_of(error), str(due.platform_id)
                _log.warning(
                    "old rows not deleted", what=due.what, platform=platform, error=message
                )
                return removed, True
            removed += count
            if count < _PAGE or monotonic() >= deadline:
                return removed, count < _PAGE

    async def _page(self, due: _Due, at: datetime) -> int:
        self._unnamed.clear()
        async with self._platforms.writing(due.platform_id) as connection:
            count = await due.remove(connection, platform_id=due.platform_id, at=at, limit=_PAGE)
        if self._files is not None:
            await self._files.remove(self._unnamed)
        return count
