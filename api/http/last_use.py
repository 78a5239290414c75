"""What the use of a token leaves behind: noted in memory, written by a task, never by a request."""

import asyncio
import time
from asyncio import Task
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Final, Self

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from cardledger.api.http.rate_limits import remember
from cardledger.ledger.platforms import api_tokens
from cardledger.ledger.storage.secrets import secret_hashes
from cardledger.ledger.storage.secrets.secret_hashes import Rehash
from cardledger.schema.ids import Id
from cardledger.workers.client import background

_LIMIT: Final = 10_000  # Tokens that are remembered as written.
_PAUSE_S: Final = 1.0  # Between writes, so that they are few.

_log = structlog.get_logger()


class LastUses:
    """Records uses of tokens, of each at most one a minute, and replaces outdated hashes.

    An async context manager.

    What was noted is lost when the process ends within a second: a use is a hint for people who
    look for unused tokens, not a record.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        clock: Callable[[], datetime],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        pause_s: float = _PAUSE_S,
    ) -> None:
        """Write through `engine`; times are those of `clock`."""
        self._engine: Final = engine
        self._clock: Final = clock
        self._monotonic: Final = monotonic
        self._pause_s: Final = pause_s
        self._noted: Final[OrderedDict[Id, float]] = OrderedDict()
        self._unwritten: dict[Id, datetime] = {}
        self._rehashes: dict[Id, Rehash] = {}
        self._has_unwritten: Final = asyncio.Event()
        self._task: Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await background.end(self._task)

    def replace_hash(self, rehash: Rehash) -> None:
        """Replace a hash that a former server key has made; a lost one at another use."""
        if len(self._rehashes) < _LIMIT:
            self._rehashes[rehash.id] = rehash
            self._has_unwritten.set()

    def note(self, token_id: Id) -> None:
        """Note that a token is used now."""
        now = self._monotonic()
        noted = self._noted.get(token_id)
        if noted is not None and now - noted < api_tokens.USE_INTERVAL.total_seconds():
            return
        remember(self._noted, token_id, now, limit=_LIMIT)
        self._unwritten[token_id] = self._clock()
        self._has_unwritten.set()

    async def _write(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():
            await self._has_unwritten.wait()
            self._has_unwritten.clear()
            # Apart: what one of them meets does not lose the other.
            await self._write_uses()
            await self._replace_hashes()
            await asyncio.sleep(self._pause_s)

    async def _write_uses(self) -> None:
        uses, self._unwritten = self._unwritten, {}
        try:
            async with self._engine.begin() as connection:
                await api_tokens.record_uses(connection, uses)
        except Exception:  # noqa: BLE001 - the next use of the token is written instead
            # Not a warning: an outage of PostgreSQL has its own lines.
            _log.debug("last uses of tokens not written", tokens=len(uses), exc_info=True)
            for token_id in uses:
                self._noted.pop(token_id, None)

    async def _replace_hashes(self) -> None:
        rehashes, self._rehashes = self._rehashes, {}
        try:
            for rehash in rehashes.values():
                async with self._engine.begin() as connection:  # One row: it locks no other.
                    await secret_hashes.replace(connection, rehash)
        except Exception:  # noqa: BLE001 - the next use of the secret replaces its hash
            _log.debug("outdated hashes not replaced", hashes=len(rehashes), exc_info=True)
