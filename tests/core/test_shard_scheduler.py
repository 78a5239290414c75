"""Which thread drains which shards."""

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from cardledger.ledger.messaging.inbox import SHARDS, Lane
from cardledger.workers.process.shard_scheduler import ShardScheduler
from tests.waiting import limit_s


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


ONE_EACH = dict.fromkeys(Lane, 1)


class Slow:
    """A step that signals when it runs and ends when the test lets it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Lane, list[int]]] = []
        self.entered = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)

    def __call__(self, lane: Lane, shards: Sequence[int]) -> Sequence[int]:
        self.calls.append((lane, list(shards)))
        self.entered.release()
        assert self.leave.acquire(timeout=limit_s())
        return []

    def wait_entered(self) -> None:
        assert self.entered.acquire(timeout=limit_s())


def test_shards_announced_while_a_thread_works_are_its_next_batch() -> None:
    slow = Slow()
    scheduler = ShardScheduler(slow, threads=ONE_EACH)
    thread = in_thread(lambda: scheduler.run(Lane.LIVE, [3]))
    slow.wait_entered()

    for shard in (3, 5, 3, 4):
        scheduler.run(Lane.LIVE, [shard])  # Returns at once.
    slow.leave.release(2)
    thread.join(limit_s())

    assert slow.calls == [(Lane.LIVE, [3]), (Lane.LIVE, [3, 5, 4])]


def test_a_batch_takes_half_of_the_shards_and_leaves_the_rest_to_another_thread() -> None:
    slow = Slow()
    scheduler = ShardScheduler(slow, threads=dict.fromkeys(Lane, 2))
    first = in_thread(lambda: scheduler.run(Lane.LIVE, range(SHARDS)))
    slow.wait_entered()

    second = in_thread(lambda: scheduler.run(Lane.LIVE, [0]))
    slow.wait_entered()
    slow.leave.release(3)
    for thread in (first, second):
        thread.join(limit_s())

    half = SHARDS // 2
    assert slow.calls[:2] == [
        (Lane.LIVE, list(range(half))),
        (Lane.LIVE, list(range(half, SHARDS))),
    ]
    assert slow.calls[2:] == [(Lane.LIVE, [0])], "and a shard announced meanwhile once more"


def test_a_live_shard_never_waits_for_bulk_shards() -> None:
    slow = Slow()
    scheduler = ShardScheduler(slow, threads=ONE_EACH)
    bulk = in_thread(lambda: scheduler.run(Lane.BULK, [1]))
    slow.wait_entered()

    live = in_thread(lambda: scheduler.run(Lane.LIVE, [1]))
    slow.wait_entered()
    slow.leave.release(2)
    for thread in (bulk, live):
        thread.join(limit_s())

    assert slow.calls == [(Lane.BULK, [1]), (Lane.LIVE, [1])]


def test_a_file_rests_between_its_batches_while_callers_wait_for_authorizations() -> None:
    """Its batches kept the processors busy that authorizations of others need."""
    now, batch_s = 100.0, 0.02
    rests: list[float] = []
    calls: list[Lane] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 1:
            before = len(calls)
            scheduler.run(Lane.BULK, [2])
            assert len(calls) == before, "no thread takes the place of one that rests"

    def step(lane: Lane, shards: Sequence[int]) -> Sequence[int]:
        nonlocal now
        calls.append(lane)
        now += batch_s
        scheduler.note_decided(lane, is_awaited=shards != [9])
        return []

    scheduler = ShardScheduler(step, threads=ONE_EACH, clock=lambda: now, rest=rest)
    scheduler.run(Lane.LIVE, [9])  # A canary.
    scheduler.run(Lane.BULK, [1])
    scheduler.run(Lane.BULK, [1])
    assert rests == [], "no caller waits but those of the file"

    scheduler.run(Lane.LIVE, [1])
    scheduler.run(Lane.BULK, [1])
    now += 1.0
    scheduler.run(Lane.BULK, [1])

    assert calls[3:] == [Lane.LIVE, Lane.BULK, Lane.BULK, Lane.BULK]
    assert rests == pytest.approx([0.02, 0.02]), "as long as the batches took"

    batch_s = 0.9
    scheduler.run(Lane.LIVE, [1])
    scheduler.run(Lane.BULK, [1])
    assert rests[2:] == [0.2], "up to a limit"


def test_an_unfinished_shard_is_taken_again_after_those_announced_meanwhile() -> None:
    calls: list[list[int]] = []

    def step(_: Lane, shards: Sequence[int]) -> Sequence[int]:
        calls.append(list(shards))
        if len(calls) == 1:
            scheduler.run(Lane.BULK, [2])
        return [1] if len(calls) == 1 else []

    scheduler = ShardScheduler(step, threads=ONE_EACH)
    scheduler.run(Lane.BULK, [1, 3])

    assert calls == [[1, 3], [2, 1]], "and a finished shard is not taken again"


def test_a_batch_that_fails_releases_its_shards() -> None:
    calls: list[list[int]] = []

    def fail(_: Lane, shards: Sequence[int]) -> Sequence[int]:
        calls.append(list(shards))
        raise RuntimeError

    scheduler = ShardScheduler(fail, threads=ONE_EACH)
    scheduler.run(Lane.BULK, [1])
    scheduler.run(Lane.BULK, [1])
    scheduler.run(Lane.BULK, [2])

    assert calls == [[1], [1], [2]]


def test_no_doorbell_is_lost_and_no_shard_is_in_two_batches_at_a_time() -> None:
    work = dict.fromkeys(((lane, shard) for lane in Lane for shard in range(SHARDS)), 0)
    done = dict.fromkeys(work, 0)
    busy: set[tuple[Lane, int]] = set()
    lock = threading.Lock()
    clashes: list[tuple[Lane, int]] = []

    def step(lane: Lane, shards: Sequence[int]) -> Sequence[int]:
        queues = {(lane, shard) for shard in shards}
        with lock:
            clashes.extend(queues & busy)
            busy.update(queues)
            done.update({queue: work[queue] for queue in queues})
        time.sleep(0)
        with lock:
            busy.difference_update(queues)
        return []

    scheduler = ShardScheduler(step, threads=dict.fromkeys(Lane, 2))

    def notify() -> None:
        for n in range(400):
            lane, shard = list(work)[n % len(work)]
            with lock:
                work[lane, shard] += 1
            scheduler.run(lane, [shard])

    threads = [in_thread(notify) for _ in range(6)]
    for thread in threads:
        thread.join(limit_s())

    assert not clashes
    assert done == work


def test_shards_that_do_not_exist_are_ignored() -> None:
    steps: list[list[int]] = []

    def step(_: Lane, shards: Sequence[int]) -> Sequence[int]:
        steps.append(list(shards))
        return []

    scheduler = ShardScheduler(step, threads=ONE_EACH)
    scheduler.run(Lane.LIVE, [-1, 2**70, *range(200_000)])

    assert sorted(shard for shards in steps for shard in shards) == list(range(SHARDS))
    assert len(steps) == 2
