"""Which thread drains which queue: each at most once in a process, files never on all threads."""

from collections.abc import Callable
from threading import Lock

import structlog

from ledger.inbox import Lane

Queue = tuple[Lane, int]

_log = structlog.get_logger()


class Drains:
    """Runs `drain` for queues that were rung for.

    A queue rung for while it is being drained is drained once more afterwards, by the same
    thread. Beyond `bulk_threads` at a time, bulk queues wait for a thread that is done with one,
    so that a file never keeps an authorization waiting for a thread.
    """

    def __init__(self, drain: Callable[[Lane, int], object], *, bulk_threads: int) -> None:
        """Drain with `drain`, which returns when its queue is empty."""
        self._drain = drain
        self._bulk_threads = bulk_threads
        self._lock = Lock()
        self._running: set[Queue] = set()
        self._rung_again: set[Queue] = set()
        self._waiting: dict[Queue, None] = {}  # In the order in which they were rung for.

    def run(self, lane: Lane, shard: int) -> None:
        """Drain a queue, or leave it to the thread that is at it or will come to it."""
        queue = self._start((lane, shard))
        while queue:
            try:
                self._drain(*queue)
            except Exception:  # noqa: BLE001 - the next queue must be drained
                # Nothing is lost: its messages wait in the inbox for the sweeper's next round.
                _log.exception("drain failed", lane=queue[0].name, shard=queue[1])
                self._forget_rings(queue)
            queue = self._next(queue)

    def _start(self, queue: Queue) -> Queue | None:
        with self._lock:
            if queue in self._running:
                self._rung_again.add(queue)
                return None
            if queue[0] is Lane.BULK and self._bulk_running() >= self._bulk_threads:
                self._waiting[queue] = None
                return None
            self._running.add(queue)
            return queue

    def _next(self, done: Queue) -> Queue | None:
        with self._lock:
            if done in self._rung_again:
                self._rung_again.remove(done)
                return done
            self._running.remove(done)
            if done[0] is Lane.BULK and self._waiting:
                following = next(iter(self._waiting))
                del self._waiting[following]
                self._running.add(following)
                return following
            return None

    def _forget_rings(self, queue: Queue) -> None:
        with self._lock:
            self._rung_again.discard(queue)

    def _bulk_running(self) -> int:
        return sum(lane is Lane.BULK for lane, _ in self._running)
