"""Which thread decides what waits: queues together, each at most once in a process."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Final

import structlog

from cardledger.ledger.messaging.inbox import SHARDS, Lane

Queue = tuple[Lane, int]

_MOST: Final = SHARDS // 2
"""Queues in one batch: with half of them the other half is for another thread, so that one decides
while the other waits for PostgreSQL."""

_log = structlog.get_logger()


class ShardScheduler:
    """Decides the queues that were rung for, batch by batch.

    A thread takes many queues at once, for a batch costs the same whether it has one message or
    fifty; and it takes anew after every batch, so that what was rung for meanwhile is not decided
    in many small ones. Of a lane only a few threads are at work; what else is rung for they take
    next. So load makes batches larger, and a file never keeps an authorization waiting for a
    thread.
    """

    def __init__(
        self, step: Callable[[Lane, Sequence[int]], Sequence[int]], *, threads: Mapping[Lane, int]
    ) -> None:
        """Decide with `step`, which takes one batch and returns the queues that may have more."""
        self._step: Final = step
        self._threads: Final = threads
        self._lock: Final = Lock()
        self._rung: Final[dict[Lane, dict[int, None]]] = defaultdict(dict)  # In order of rings.
        self._taken: Final[dict[Lane, set[int]]] = defaultdict(set)
        self._at_work: Final[Counter[Lane]] = Counter()

    def run(self, lane: Lane, shards: Iterable[int]) -> None:
        """Decide what waits in queues, or leave it to the threads that are at work."""
        self._ring(lane, shards)
        while taken := self._take(lane):
            unfinished: Sequence[int] = ()
            try:
                unfinished = self._step(lane, taken)
            except Exception:  # noqa: BLE001 - the other queues must be drained
                # Nothing is lost: its messages wait in the inbox for the sweeper's next round.
                _log.exception("drain failed", lane=lane.name, shards=taken)
            finally:
                self._leave(lane, taken, unfinished)

    def _ring(self, lane: Lane, shards: Iterable[int]) -> None:
        with self._lock:
            self._rung[lane].update(dict.fromkeys(shards))

    def _take(self, lane: Lane) -> list[int]:
        with self._lock:
            if self._at_work[lane] >= self._threads[lane]:
                return []
            rung, taken = self._rung[lane], self._taken[lane]
            free = [shard for shard in rung if shard not in taken][:_MOST]
            if free:
                for shard in free:
                    del rung[shard]
                taken.update(free)
                self._at_work[lane] += 1
            return free

    def _leave(self, lane: Lane, taken: Sequence[int], unfinished: Sequence[int]) -> None:
        with self._lock:
            self._taken[lane].difference_update(taken)
            self._at_work[lane] -= 1
            # At the end of the line: others were rung for meanwhile.
            self._rung[lane].update(dict.fromkeys(unfinished))
