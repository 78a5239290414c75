"""The directory of documents for an event loop: in threads of its own, and only for its database.

A disk that hangs, as a network file system does, would take the threads of the event loop, which
resolve the names of hosts for every connection: what has nothing to do with documents would wait.
One platform has at most half of the threads, so that its files keep none of another waiting.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg
import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from cardledger.ledger.customers.documents.directory import (
    DirectoryError,
    FileDirectory,
    FilePlace,
    StoredFile,
)
from cardledger.schema.ids import Id

_THREADS: Final = 4
_THREADS_OF_PLATFORM: Final = _THREADS // 2
_WAIT_S: Final = 1.0  # Until one is free: on a disk that works it takes milliseconds.

# No column of a table: a copy of the database would have the same.
_OWNER: Final = (
    "SELECT s.system_identifier || '/' || d.oid FROM pg_control_system() s, pg_database d"
    " WHERE d.datname = current_database()"
)
_HAS_DOCUMENTS: Final = "SELECT EXISTS (SELECT FROM documents)"

Result = TypeVar("Result")

_log = structlog.get_logger()


class PlatformBusyError(DirectoryError):
    """The threads that a platform may have are all in use by it, and the disk answers them."""


@dataclass(slots=True)
class _OfPlatform:
    """The threads of one platform, and how many requests use them or wait for them."""

    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_THREADS_OF_PLATFORM))
    users: int = 0
    ended: int = 0
    """How often work with a file has ended: it grows while the disk answers."""

    def count_end(self) -> None:
        self.ended += 1


def owner(connection: psycopg.Connection[Any]) -> str:
    """Return what the marker of a directory says if it is of the database of `connection`."""
    [(found,)] = connection.execute(_OWNER).fetchall()
    return str(found)


class DocumentStore:
    """The files of documents in a directory, for the processes of one database."""

    def __init__(self, path: Path, installation: AsyncEngine) -> None:
        """Use the directory `path` if it is of the database of `installation`."""
        self._path: Final = path
        self._installation: Final = installation
        self._threads: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="documents")
        self._free: Final = asyncio.Semaphore(_THREADS)
        self._platforms: Final[dict[Id, _OfPlatform]] = {}
        self._claiming: Final = threading.Lock()

    def close(self) -> None:
        """Take no more work, and wait for none."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def write(self, platform_id: Id, document_id: Id, sealed: bytes) -> StoredFile:
        """Store an encrypted file that no row names so far.

        The first document of a database marks an empty directory as its own.
        Raises: PlatformBusyError, DirectoryError, after which nothing is stored.
        """
        async with self._installation.connect() as connection:
            is_first = not await connection.scalar(text(_HAS_DOCUMENTS))

        def write(directory: FileDirectory) -> StoredFile:
            if is_first:
                with self._claiming:
                    directory.claim_if_empty()
            return directory.write(platform_id, document_id, sealed)

        return await self.run(write, platform_id=platform_id)

    async def remove(self, places: Iterable[FilePlace]) -> None:
        """Remove files that no row names any more; what fails is removed as left over later."""
        wanted = tuple(places)
        if not wanted:
            return
        try:
            await self.run(
                lambda directory: directory.remove(wanted), platform_id=wanted[0].platform_id
            )
        except PlatformBusyError as error:
            _log.info("files of documents not removed", reason=str(error), count=len(wanted))
        except DirectoryError as error:
            _log.error("files of documents not removed", error=str(error), count=len(wanted))

    async def run(
        self, work: Callable[[FileDirectory], Result], *, platform_id: Id | None = None
    ) -> Result:
        """Return what `work` does with the directory, in a thread, for a platform if it is given.

        Raises: PlatformBusyError; DirectoryError, also where every thread waits for the disk, or
        every thread that the platform may have; what `work` raises.
        """
        async with self._installation.connect() as connection:
            of = str(await connection.scalar(text(_OWNER)))
        release = await self._thread(platform_id)
        loop = asyncio.get_running_loop()
        future = self._threads.submit(work, FileDirectory(self._path, of))
        # A request that is given up does not free a thread that waits for the disk.
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(release))
        return await asyncio.wrap_future(future)

    async def _thread(self, platform_id: Id | None) -> Callable[[], None]:
        """Wait for a thread, and for the turn of a platform before; return what gives both back.

        Raises: PlatformBusyError where others of the platform had their turn meanwhile;
        DirectoryError.
        """
        with ExitStack() as held:
            own: _OfPlatform | None = None
            if platform_id is not None:
                own = self._platforms.setdefault(platform_id, _OfPlatform())
                own.users += 1
                held.callback(self._leave, platform_id, own)
                ended = own.ended
                if not await _is_free(own.free):
                    if own.ended == ended:
                        raise _silent()
                    raise PlatformBusyError("other files of the platform are being stored")
                held.callback(own.free.release)
            if not await _is_free(self._free):
                raise _silent()
            held.callback(self._free.release)
            if own is not None:
                held.callback(own.count_end)
            return held.pop_all().close

    def _leave(self, platform_id: Id, own: "_OfPlatform") -> None:
        own.users -= 1
        if not own.users:
            del self._platforms[platform_id]


async def _is_free(threads: asyncio.Semaphore) -> bool:
    """Wait for one of `threads`, and take it; return whether there was one in time."""
    try:
        async with asyncio.timeout(_WAIT_S):
            await threads.acquire()
    except TimeoutError:
        return False
    return True


def _silent() -> DirectoryError:
    return DirectoryError("the directory of documents does not answer")
