"""Codes on their way to customers, handed over by tasks of their own in threads of their own.

A code is handed over once its challenge is committed. From then on a repetition with the same
`Idempotency-Key` gets the stored response and sends no code. So nothing that ends a request ends
its delivery: neither its time limit nor a client that leaves. Calls of other systems outside, which
may hang, keep no code waiting.
"""

import asyncio
from asyncio import Task
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from cardledger.api.http.errors import unavailable
from cardledger.api.http.outside_calls import OutsideCalls
from cardledger.ledger.customers.authentication.codes import LIFETIME
from cardledger.schema.ids import Id

THREADS: Final = 8
THREADS_OF_PLATFORM: Final = 2

WAITING: Final = 400
WAITING_OF_PLATFORM: Final = 100
"""Codes that are on their way when no more are taken; those of requests in progress come on top.

A platform may have `FEW` whatever the others have: it is not refused because of theirs.
"""

FEW: Final = 2 * THREADS_OF_PLATFORM

_END_S: Final = 2.0  # Of the time in which the process ends, for codes that are on their way.

_log = structlog.get_logger()


class CodeDeliveries:
    """The codes of one event loop that are on their way."""

    def __init__(self, *, end_s: float = _END_S) -> None:
        """Wait for at most `end_s` at the end."""
        self._end_s: Final = end_s
        self._calls: Final = OutsideCalls(
            threads=THREADS,
            of_platform=THREADS_OF_PLATFORM,
            name="codes",
            wait_s=LIFETIME.total_seconds(),  # After that the code is not accepted any more.
        )
        self._tasks: Final[set[Task[None]]] = set()
        self._waiting: Final[Counter[Id]] = Counter()

    def check(self, platform_id: Id) -> None:
        """Refuse a code before its challenge is committed, when too many are on their way.

        Raises: ApiError SERVICE_UNAVAILABLE.
        """
        waiting = self._waiting[platform_id]
        is_full = self._waiting.total() >= WAITING and waiting >= FEW
        if is_full or waiting >= WAITING_OF_PLATFORM:
            _log.error("too many codes wait to be sent", platform=str(platform_id))
            message = "Too many codes wait to be sent; this one was not created. Retry later."
            raise unavailable(message)

    def start(self, platform_id: Id, send: Callable[[], None]) -> None:
        """Have `send` hand over a code whose challenge is committed; never refused."""
        self._waiting[platform_id] += 1
        task = asyncio.get_running_loop().create_task(self._deliver(platform_id, send))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait a moment for codes that are on their way, and take no more."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._end_s)
        if lost := len(self._tasks):
            _log.error("codes are not sent: the process ends", count=lost)
        for task in self._tasks:
            task.cancel()
        self._calls.close()

    async def _deliver(self, platform_id: Id, send: Callable[[], None]) -> None:
        try:
            await self._calls.run(platform_id, send)
        except Exception as error:  # noqa: BLE001 - of a provider; its caller has the response
            # By its type only: the message may have the address, or the code.
            _log.error("code not sent", platform=str(platform_id), error=type(error).__name__)
        finally:
            self._waiting[platform_id] -= 1
            if not self._waiting[platform_id]:
                del self._waiting[platform_id]
