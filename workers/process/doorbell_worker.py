"""Dramatiq's worker, stopped without waiting for the time-outs of its idle threads.

Each of its threads sleeps for up to a second, those that take doorbells from Redis as well as those
that run actors; Dramatiq stops the latter first and then the former. So a worker with nothing to do
took up to two seconds to stop, and three more while Redis was unavailable. And a doorbell that it
has taken and not begun is for other workers at once, not when the last of its actors has ended.
"""

from queue import Empty, PriorityQueue
from time import monotonic
from typing import Any, Final

from dramatiq import Worker
from dramatiq.common import iter_queue, join_all
from typing_extensions import override

from cardledger.workers.signals.broker import WakingBroker

_SLEEP_ENDS_S: Final = 2.0
_END_AGAIN_MS: Final = 50


class DoorbellWorker(Worker):
    """Takes doorbells and runs their actors."""

    def __init__(self, broker: WakingBroker, *, threads: int) -> None:
        """Run the actors of `broker` in `threads` threads."""
        super().__init__(broker, worker_threads=threads)
        self._waking_broker: Final = broker
        self._queue: Final = _ClosableQueue()
        self.work_queue = self._queue

    def begin_no_more(self) -> None:
        """From now on take no doorbell, and begin none that was taken; return at once.

        Dramatiq's worker takes doorbells until its last actor has ended, which may take seconds:
        those that it took were run by none of the other workers meanwhile.
        """
        self._waking_broker.is_stopping.set()
        self._queue.close()
        for worker in self.workers:
            worker.stop()
        for consumer in self.consumers.values():
            consumer.stop()

    @override
    def stop(self, timeout: int = 600_000) -> None:
        """Announce again what was not begun, let running actors finish, and end the threads."""
        self.begin_no_more()
        self._waking_broker.let_consumers_take_no_more()
        self._end_sleeps(monotonic() + min(timeout / 1000, _SLEEP_ENDS_S))
        queued = iter_queue(self._queue)  # type: ignore[no-untyped-call]
        waiting = [item.message for item in queued]
        self._waking_broker.announce([*waiting, *self._waking_broker.cached()])
        join_all(self.workers, timeout)  # type: ignore[no-untyped-call]
        super().stop(timeout)
        self._waking_broker.close()

    def _end_sleeps(self, deadline: float) -> None:
        """End the sleeps of all consumers: again and again, because one may just be beginning."""
        consumers = list(self.consumers.values())
        while any(consumer.is_alive() for consumer in consumers) and monotonic() < deadline:
            self._waking_broker.end_sleeps()
            join_all(consumers, _END_AGAIN_MS)  # type: ignore[no-untyped-call]


class _ClosableQueue(PriorityQueue[Any]):
    """A queue whose readers that wait get nothing any more once it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self._is_closed = False

    def close(self) -> None:
        """End the waits of all readers."""
        with self.mutex:
            self._is_closed = True
            self.not_empty.notify_all()

    @override
    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the first item; raise Empty when there is none in time, or after `close`.

        Without `block`, what is left is returned after `close` as well.
        """
        with self.not_empty:
            if block:
                self.not_empty.wait_for(lambda: self._qsize() or self._is_closed, timeout)
            if not self._qsize() or (block and self._is_closed):
                raise Empty
            return self._get()
