"""Calls of systems outside: in threads of their own, of which a platform has some.

A system that hangs would take the threads of the event loop, which resolve the names of hosts and
compute what takes long: what has nothing to do with it would wait.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from cardledger.api.http.errors import unavailable
from cardledger.schema.ids import Id

THREADS: Final = 32
THREADS_OF_PLATFORM: Final = 4
_WAIT_S: Final = 10.0  # Until one is free.

Result = TypeVar("Result")

_log = structlog.get_logger()


@dataclass(slots=True)
class _OfPlatform:
    """The threads of one platform, and how many requests use them or wait for them."""

    free: asyncio.Semaphore
    users: int = 0


class OutsideCalls:
    """The threads of one event loop in which systems outside are called."""

    def __init__(
        self,
        *,
        threads: int = THREADS,
        of_platform: int = THREADS_OF_PLATFORM,
        name: str = "outside",
        wait_s: float = _WAIT_S,
    ) -> None:
        """Call in `threads` threads, `of_platform` for one platform.

        A call waits for `wait_s` until one is free. They are called `name`.
        """
        self._of_platform: Final = of_platform
        self._wait_s: Final = wait_s
        self._threads: Final = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free: Final = asyncio.Semaphore(threads)
        self._platforms: Final[dict[Id, _OfPlatform]] = {}

    def close(self) -> None:
        """Take no more calls, and wait for none."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, platform_id: Id, call: Callable[[], Result]) -> Result:
        """Return what `call` returns, in a thread, for a platform.

        Raises: ApiError SERVICE_UNAVAILABLE when no thread becomes free; what `call` raises.
        """
        try:
            async with asyncio.timeout(self._wait_s):
                release = await self._thread(platform_id)
        except TimeoutError:
            _log.error("systems outside do not answer", platform=str(platform_id))
            message = "The systems outside that this needs do not answer now. Retry later."
            raise unavailable(message) from None
        loop = asyncio.get_running_loop()

        def ended() -> None:
            with suppress(RuntimeError):  # The event loop has ended.
                loop.call_soon_threadsafe(release)

        future = self._threads.submit(copy_context().run, call)
        # A request that is given up does not free a thread that waits for a system outside.
        future.add_done_callback(lambda _: ended())
        return await asyncio.wrap_future(future)

    async def _thread(self, platform_id: Id) -> Callable[[], None]:
        """Wait for a thread, and for one of a platform before; return what gives both back."""
        with ExitStack() as held:
            own = self._platforms.get(platform_id)
            if own is None:
                own = _OfPlatform(asyncio.Semaphore(self._of_platform))
                self._platforms[platform_id] = own
            own.users += 1
            held.callback(self._leave, platform_id, own)
            for free in (own.free, self._free):
                await free.acquire()
                held.callback(free.release)
            return held.pop_all().close

    def _leave(self, platform_id: Id, own: _OfPlatform) -> None:
        own.users -= 1
        if not own.users:
            del self._platforms[platform_id]
