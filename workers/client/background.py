"""Tasks that repeat a step until they are stopped in good order."""

import asyncio
from asyncio import Task
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

from cardledger.workers.signals.repeated_warning import RepeatedFailure

_STOP_S: Final = 2.0  # How long a statement may take to end when the client stops.
_RETRY_DELAY_S: Final = 0.1
_CANCEL_INTERVAL_S: Final = 0.1

_FAILED: Final = RepeatedFailure("client background task failed; retrying")


class BackgroundTasks:
    """Steps that repeat, each in a task of its own."""

    def __init__(self) -> None:
        self._tasks: Final[set[Task[None]]] = set()
        self._cancelled_repeatedly: Final[set[Task[None]]] = set()

    def start(
        self, step: Callable[[], Awaitable[None]], *, cancel_repeatedly: bool = False
    ) -> None:
        """Repeat `step` until `stop`, which cancels it again and again if `cancel_repeatedly`."""
        task = asyncio.create_task(_repeat(step))
        self._tasks.add(task)
        if cancel_repeatedly:
            self._cancelled_repeatedly.add(task)

    async def stop(self) -> None:
        """Cancel every task and return when all have ended."""
        for task in self._tasks:
            if not task.cancelling():
                task.cancel()
        running = set(self._tasks)
        deadline = monotonic() + _STOP_S
        while running:
            _, running = await asyncio.wait(running, timeout=_CANCEL_INTERVAL_S)
            for task in running:
                # A task with a database connection gives it back in good order, which a second
                # cancellation would interrupt. The listener has none, and redis-py can lose a
                # cancellation.
                if task in self._cancelled_repeatedly or monotonic() > deadline:
                    task.cancel()


async def end(task: Task[None] | None) -> None:
    """Return once `task` has ended, which is cancelled again and again until then."""
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_INTERVAL_S)


async def _repeat(step: Callable[[], Awaitable[None]]) -> None:
    """Repeat `step` until this task is cancelled."""
    task = asyncio.current_task()
    assert task is not None
    # Up to Python 3.11 `asyncio.wait_for`, which redis-py sends with, loses a cancellation that
    # arrives at the moment in which it finishes: the task still knows of it.
    while not task.cancelling():
        try:
            await step()
        except Exception as error:  # noqa: BLE001 - a background task never ends by itself
            _FAILED.note(error)
            await asyncio.sleep(_RETRY_DELAY_S)
