"""Threads that drain what a sweep of the inbox has found: shards whose doorbell was lost."""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Final

from cardledger.ledger.messaging.inbox import Lane
from cardledger.workers.process.shard_scheduler import ShardScheduler

# Each lane has its own, so that without Redis, too, a file never keeps an authorization waiting.
_THREADS: Final = {Lane.LIVE: 2, Lane.BULK: 1}


class Sweepers:
    """A few threads a lane, because a file may take long."""

    def __init__(self, scheduler: ShardScheduler) -> None:
        self._scheduler: Final = scheduler
        self._pools: Final = {
            lane: ThreadPoolExecutor(threads, thread_name_prefix=f"sweeper-{lane.name.lower()}")
            for lane, threads in _THREADS.items()
        }
        self._running: Final[dict[Lane, list[Future[None]]]] = {lane: [] for lane in Lane}

    def drain(self, waiting: Iterable[tuple[Lane, int]]) -> None:
        """Announce `waiting`, and let a thread that is free drain it; return at once.

        Announced also while none is free: a thread that drains one shard for minutes takes the
        others between its batches, and so do those of doorbells.
        """
        found: dict[Lane, list[int]] = {}
        for lane, shard in waiting:
            found.setdefault(lane, []).append(shard)
        for lane, shards in found.items():
            self._scheduler.announce(lane, shards)
            running = [each for each in self._running[lane] if not each.done()]
            if len(running) < _THREADS[lane]:
                running.append(self._pools[lane].submit(self._scheduler.run, lane))
            self._running[lane] = running

    def begin_no_more(self) -> None:
        """Let no thread begin anything from now on; return at once."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def wait(self, limit_s: float) -> None:
        """Return when the threads have ended, or after `limit_s`."""
        wait_for([each for running in self._running.values() for each in running], limit_s)
