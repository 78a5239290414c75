"""A task that runs when it is woken, and at an interval in any case."""

from collections.abc import Callable
from threading import Event, Thread
from time import monotonic
from typing import Final

import structlog

from cardledger.ledger.storage.engines import is_unable
from cardledger.workers.signals.outage_log import DATABASE

_YIELDED: Final = 3  # Times what a run took.
_LONGEST_REST_S: Final = 0.1
_RETRY_S: Final = 0.5

_log = structlog.get_logger()


class PeriodicTask:
    """A thread that runs `work` when it is woken, and every `every_s` seconds.

    A function for `every_s` is asked before each wait. `work` returns whether there is more to do;
    it runs again at once until there is not. Once woken, the thread waits for `gather_s` first, to
    collect further wake-ups: one run for ten costs little more than one for each.

    A task that gathers wake-ups rests after a run for as long as it took, 0.1 s at most. A run
    takes longer when the machine is busy, and fewer, larger runs leave more of it to others. While
    `yields` returns true, any task rests three times as long, also when there is more to do, and
    0.1 s at most as well. After a failure it runs again in half a second at the latest.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], bool],
        *,
        every_s: float | Callable[[], float],
        gather_s: float = 0.0,
        yields: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make the thread; `start` starts it."""
        self.name: Final = name
        self.trying_since: float | None = None
        """When the run that is going on, or the first that has failed, began; else None."""
        self._work: Final = work
        self._every_s: Final = every_s if callable(every_s) else lambda: every_s
        self._gather_s: Final = gather_s
        self._yields: Final = yields
        self._rests_until = 0.0
        self._woken: Final = Event()
        self._stopping: Final = Event()
        self._is_resting = True
        self._thread: Final = Thread(target=self._run, name=name, daemon=True)
        self._failure: str | None = None  # Of the last run; None when it succeeded.

    @property
    def is_running(self) -> bool:
        """Whether the thread has been started and has not ended."""
        return self._thread.is_alive()

    @property
    def is_resting(self) -> bool:
        """Whether `work` does not run now."""
        return self._is_resting

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
            try:
                if self._woken.wait(self._pause_s()) and self._gather_s:
                    self._stopping.wait(max(self._gather_s, self._rests_until - monotonic()))
                self._woken.clear()
                self._is_resting = False
                while not self._stopping.is_set() and self._run_once():
                    pass
            except Exception as error:  # noqa: BLE001 - a periodic task never ends by itself
                # It runs again after a pause; what it works on is in PostgreSQL.
                self._note_failure(error)
            self._is_resting = True

    def _pause_s(self) -> float:
        every_s = self._every_s()
        return every_s if self.trying_since is None else min(every_s, _RETRY_S)

    def _run_once(self) -> bool:
        began = monotonic()
        self.trying_since = self.trying_since or began
        has_more = self._work()
        ended = monotonic()
        rest_s = min(ended - began, _LONGEST_REST_S)
        self._rests_until = ended + rest_s
        self._note_success()
        if self._yields():
            self._stopping.wait(min(_YIELDED * (ended - began), _LONGEST_REST_S))
        return has_more

    def _note_failure(self, error: Exception) -> None:
        """Log a failure once, however often it is repeated."""
        failure = f"{type(error).__name__}: {error}"
        if is_unable(error):
            DATABASE.failed(error)
        elif failure != self._failure:
            _log.exception("periodic task failed; it is retried", task=self.name)
        self._failure = failure

    def _note_success(self) -> None:
        self.trying_since = None
        if self._failure is not None:  # Of other tasks it cannot say that they reach PostgreSQL.
            self._failure = None
            DATABASE.succeeded()
            _log.info("periodic task succeeds again", task=self.name)
