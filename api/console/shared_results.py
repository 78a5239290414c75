"""Results that the viewers of a platform share: what many tabs refresh is read once.

A result is shared for less than the time from one refresh of a tab to the next. Viewers that ask
while it is computed wait for it; a failure is that of those who waited, and is not kept.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from cardledger.api.http.rate_limits import remember
from cardledger.schema.ids import Id

KEPT_S: Final = 1.5
"""For how long a result is shared, from the beginning of its computation."""

_PLATFORMS: Final = 100

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared(Generic[_Result]):
    began_at: float
    task: asyncio.Task[_Result]


class SharedResults(Generic[_Result]):
    """The last result of each platform; one per event loop."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        """Have none yet."""
        self._clock: Final = clock
        self._last: Final[OrderedDict[Id, _Shared[_Result]]] = OrderedDict()
        self._running: Final[set[asyncio.Task[_Result]]] = set()

    async def of(
        self, platform_id: Id, compute: Callable[[], Coroutine[Any, Any, _Result]]
    ) -> _Result:
        """Return the result of the platform, which `compute` makes when there is none.

        Raises: what `compute` raises.
        """
        shared = self._last.get(platform_id)
        if shared is None or not self._is_valid(shared):
            task = asyncio.create_task(compute(), name="shared result")
            self._running.add(task)
            task.add_done_callback(self._ended)
            shared = _Shared(began_at=self._clock(), task=task)
        remember(self._last, platform_id, shared, limit=_PLATFORMS)
        # A viewer that goes away does not end what others wait for.
        return await asyncio.shield(shared.task)

    async def close(self) -> None:
        """End the computations that run."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _is_valid(self, shared: _Shared[_Result]) -> bool:
        if not shared.task.done():
            return True
        has_failed = shared.task.cancelled() or shared.task.exception() is not None
        return not has_failed and self._clock() - shared.began_at < KEPT_S

    def _ended(self, task: asyncio.Task[_Result]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # Seen, also when every viewer has gone away.
