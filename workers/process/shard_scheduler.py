"""Schedules shards of the inbox on threads: many in one batch, each in one batch at a time."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock, get_ident
from time import monotonic, sleep
from typing import Final

import structlog

from cardledger.ledger.messaging.inbox import SHARDS, Lane

_SHARD_LIMIT: Final = SHARDS // 2
"""Shards in one batch: half of them, which leaves the other half for another thread, so that one
decides while the other waits for PostgreSQL."""

_RECENT_S: Final = 1.0
_LONGEST_REST_S: Final = 0.2

_EXISTING: Final = range(SHARDS)

_log = structlog.get_logger()


class ShardScheduler:
    """Drains the shards that doorbells announce, batch by batch.

    A thread takes many shards at once, because a batch of one message costs the same as one of
    fifty; and it takes anew after every batch, so that shards announced meanwhile are not decided
    in many small batches. Each lane uses only a few threads; they take further shards next. So
    load makes batches larger, and a file never keeps an authorization waiting for a thread.

    While callers wait for decisions of the live lane, a thread rests after each batch of a file for
    as long as it took, 200 ms at most: a batch keeps a processor of this process and one of
    PostgreSQL busy.
    """

    def __init__(
        self,
        step: Callable[[Lane, Sequence[int]], Sequence[int]],
        *,
        threads: Mapping[Lane, int],
        clock: Callable[[], float] = monotonic,
        rest: Callable[[float], None] = sleep,
    ) -> None:
        """Decide with `step`, which runs one batch and returns the shards that may have more."""
        self._step: Final = step
        self._threads: Final = threads
        self._clock: Final = clock
        self._sleep: Final = rest
        self._lock: Final = Lock()
        # Shards with work, in the order of their doorbells.
        self._waiting: Final[dict[Lane, dict[int, None]]] = defaultdict(dict)
        self._taken: Final[dict[Lane, set[int]]] = defaultdict(set)
        self._began: Final[dict[int, float]] = {}  # The batches that run, by thread.
        self._awaited_at = float("-inf")  # When a decision was made that a caller waited for.
        self._active_threads: Final[Counter[Lane]] = Counter()

    def announce(self, lane: Lane, shards: Iterable[int]) -> None:
        """Let threads that are active, or run later, drain `shards`.

        Those that do not exist are ignored: each would cost a query.
        """
        with self._lock:
            existing = (shard for shard in shards if shard in _EXISTING)
            self._waiting[lane].update(dict.fromkeys(existing))

    def run(self, lane: Lane, shards: Iterable[int] = ()) -> None:
        """Drain what was announced and `shards`, or leave it to threads that are already active."""
        self.announce(lane, shards)
        while taken := self._take(lane):
            unfinished: Sequence[int] = ()
            began = self._began[get_ident()] = self._clock()
            try:
                unfinished = self._step(lane, taken)
            except Exception:  # noqa: BLE001 - the other shards must be drained
                # Nothing is lost: the messages stay in the inbox until the sweeper's next run.
                _log.exception(
                    "batch failed; its messages stay in the inbox and are retried",
                    lane=lane.name,
                    shards=taken,
                )
            finally:
                del self._began[get_ident()]
                self._release(lane, taken, unfinished)
                try:
                    self._rest(lane, self._clock() - began)
                finally:
                    self._leave(lane)

    def note_decided(self, lane: Lane, *, is_awaited: bool) -> None:
        """Note that messages of `lane` were decided, and whether a caller waits for any of them.

        A file has a caller as well, who would not notice a rest.
        """
        if lane is Lane.LIVE and is_awaited:
            self._awaited_at = self._clock()

    def prove_progress(self) -> None:
        """Return, unless the threads wait for each other: nothing waits while it has the lock."""
        with self._lock:
            pass

    @property
    def longest_s(self) -> float:
        """For how long the oldest of the running batches has been running; 0 when none runs."""
        now = self._clock()
        return now - min(self._began.copy().values(), default=now)

    def _take(self, lane: Lane) -> list[int]:
        with self._lock:
            if self._active_threads[lane] >= self._threads[lane]:
                return []
            waiting, taken = self._waiting[lane], self._taken[lane]
            free = [shard for shard in waiting if shard not in taken][:_SHARD_LIMIT]
            if free:
                for shard in free:
                    del waiting[shard]
                taken.update(free)
                self._active_threads[lane] += 1
            return free

    def _release(self, lane: Lane, taken: Sequence[int], unfinished: Sequence[int]) -> None:
        with self._lock:
            self._taken[lane].difference_update(taken)
            # Last in order, behind shards that were announced meanwhile.
            self._waiting[lane].update(dict.fromkeys(unfinished))

    def _rest(self, lane: Lane, worked_s: float) -> None:
        """Rest after a batch of a file, as a thread of its lane: no other takes its place."""
        if lane is Lane.BULK and self._clock() - self._awaited_at < _RECENT_S:
            self._sleep(min(worked_s, _LONGEST_REST_S))

    def _leave(self, lane: Lane) -> None:
        with self._lock:
            self._active_threads[lane] -= 1
