"""What a sweep has found is drained, also while the threads of the sweeper are busy."""

import threading
from collections.abc import Iterator, Sequence

import pytest

from cardledger.ledger.messaging.inbox import Lane
from cardledger.workers.process.shard_scheduler import ShardScheduler
from cardledger.workers.process.sweepers import Sweepers
from tests.waiting import limit_s


class Backlogs:
    """A step that never comes to the end of some shards; the test lets each batch end."""

    def __init__(self, *endless: int) -> None:
        self.batches: list[list[int]] = []
        self.endless = set(endless)
        self.entered = threading.Semaphore(0)
        self.leave = threading.Semaphore(0)

    def __call__(self, _: Lane, shards: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(shards))
        self.entered.release()
        assert self.leave.acquire(timeout=limit_s())
        return [shard for shard in shards if shard in self.endless]

    def wait_entered(self) -> None:
        assert self.entered.acquire(timeout=limit_s())


@pytest.fixture
def backlogs() -> Backlogs:
    return Backlogs(3, 4)


@pytest.fixture
def sweepers(backlogs: Backlogs) -> Iterator[Sweepers]:
    made = Sweepers(ShardScheduler(backlogs, threads=dict.fromkeys(Lane, 2)))
    yield made
    made.begin_no_more()
    backlogs.endless.clear()
    backlogs.leave.release(100)
    made.wait(limit_s())


def test_a_file_in_one_shard_does_not_keep_a_sweep_from_the_others(
    sweepers: Sweepers, backlogs: Backlogs
) -> None:
    """Without Redis the events of another platform waited until a file was decided to its end."""
    sweepers.drain([(Lane.BULK, 3)])
    backlogs.wait_entered()

    sweepers.drain([(Lane.BULK, 3), (Lane.BULK, 5)])
    backlogs.leave.release()
    backlogs.wait_entered()

    assert backlogs.batches == [[3], [3, 5]]


def test_two_backlogs_of_authorizations_do_not_keep_a_sweep_from_the_others(
    sweepers: Sweepers, backlogs: Backlogs
) -> None:
    for shard in (3, 4):
        sweepers.drain([(Lane.LIVE, shard)])
        backlogs.wait_entered()

    sweepers.drain([(Lane.LIVE, 5)])
    backlogs.leave.release()
    backlogs.wait_entered()

    assert 5 in backlogs.batches[2]


def test_a_thread_that_is_free_drains_what_a_sweep_has_found(
    sweepers: Sweepers, backlogs: Backlogs
) -> None:
    sweepers.drain([(Lane.BULK, 3)])
    backlogs.wait_entered()

    sweepers.drain([(Lane.LIVE, 6), (Lane.BULK, 3)])
    backlogs.wait_entered()

    assert backlogs.batches == [[3], [6]]
