"""A task that runs when it is woken, and at an interval in any case."""

from collections.abc import Callable
from threading import Event, Thread
from typing import Final

import structlog

_log = structlog.get_logger()


class PeriodicTask:
    """A thread that runs `work` when it is woken, and every `every_s` seconds.

    `work` returns whether there is more to do; it runs again at once until there is not. Once
    woken, the thread waits for `gather_s` first, to collect further wake-ups: one run for ten
    costs little more than one for each.
    """

    def __init__(
        self, name: str, work: Callable[[], bool], *, every_s: float, gather_s: float = 0.0
    ) -> None:
        """Make the thread; `start` starts it."""
        self._name: Final = name
        self._work: Final = work
        self._every_s: Final = every_s
        self._gather_s: Final = gather_s
        self._woken: Final = Event()
        self._stopping: Final = Event()
        self._thread: Final = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Run `work` now, or once more when it is running."""
        self._woken.set()

    def stop(self, timeout_s: float) -> None:
        """Let a running `work` finish, then end the thread."""
        self._stopping.set()
        self._woken.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._woken.wait(self._every_s) and self._gather_s:
                self._stopping.wait(self._gather_s)
            self._woken.clear()
            try:
                while not self._stopping.is_set() and self._work():
                    pass
            except Exception:  # noqa: BLE001 - a periodic task never ends by itself
                # It runs again after the interval; what it works on is in PostgreSQL.
                _log.exception("periodic task failed", task=self._name)
