"""Periodic tasks: woken at once, and at an interval."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import monotonic
from typing import Any, Final

import pytest
import structlog
from structlog.testing import capture_logs

from cardledger.workers.signals.periodic_task import PeriodicTask
from tests.waiting import eventually, limit_s

WORK_S: Final = 0.03


@contextmanager
def running(work: Callable[[], bool], *, every_s: float) -> Iterator[PeriodicTask]:
    task = PeriodicTask("test", work, every_s=every_s)
    task.start()
    try:
        yield task
    finally:
        task.stop(limit_s())


def test_a_periodic_task_runs_when_it_is_woken() -> None:
    done = threading.Semaphore(0)

    def work() -> bool:
        done.release()
        return False

    with running(work, every_s=3600) as task:
        for _ in range(3):
            task.wake()
            assert done.acquire(timeout=limit_s())


def test_wake_ups_within_a_moment_share_one_run() -> None:
    done = threading.Semaphore(0)

    def work() -> bool:
        done.release()
        return False

    task = PeriodicTask("test", work, every_s=3600, gather_s=0.2)
    task.start()
    for _ in range(10):
        task.wake()
    assert done.acquire(timeout=limit_s())
    task.stop(limit_s())

    assert not done.acquire(blocking=False)


def test_a_periodic_task_runs_at_its_interval_also_after_a_failure() -> None:
    runs: list[int] = []

    def work() -> bool:
        runs.append(1)
        raise RuntimeError

    with running(work, every_s=0.01):
        eventually(lambda: len(runs) >= 3)


def test_a_periodic_task_runs_again_at_once_while_there_is_more_to_do() -> None:
    left = [True, True, True, False]

    with running(lambda: bool(left) and left.pop(0), every_s=3600) as task:
        task.wake()
        eventually(lambda: not left)


@pytest.mark.parametrize("has_more", [True, False])
def test_a_periodic_task_that_yields_rests_for_longer_than_it_worked(*, has_more: bool) -> None:
    """Three times as long, but 0.1 s at most."""
    assert min(_rests(has_more=has_more, yields=lambda: True)) >= min(3 * WORK_S, 0.1)


def test_wake_ups_are_collected_for_as_long_as_the_last_run_took() -> None:
    assert min(_rests(has_more=False, gather_s=0.001)) >= WORK_S


def _rests(*, has_more: bool, **options: Any) -> list[float]:  # noqa: ANN401 - of PeriodicTask
    """Return the times between runs that take `WORK_S`, of a task that is woken in each."""
    runs: list[tuple[float, float]] = []

    def work() -> bool:
        began = monotonic()
        threading.Event().wait(WORK_S)  # It takes time.
        runs.append((began, monotonic()))
        task.wake()
        return has_more

    task = PeriodicTask("test", work, every_s=3600, **options)
    task.start()
    try:
        task.wake()
        eventually(lambda: len(runs) >= 3)
    finally:
        task.stop(limit_s())
    return [began - ended for (_, ended), (began, _) in pairwise(runs)]


def test_a_stopped_periodic_task_runs_no_more() -> None:
    runs: list[int] = []

    def work() -> bool:
        runs.append(1)
        return True

    with running(work, every_s=0.001):
        eventually(lambda: runs)
    seen = len(runs)

    assert not [thread for thread in threading.enumerate() if thread.name == "test"]
    assert len(runs) == seen


def test_a_defect_that_repeats_is_logged_once() -> None:
    runs: list[int] = []

    def work() -> bool:
        runs.append(1)
        raise RuntimeError("defect")

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as logs, running(work, every_s=0.001):
        eventually(lambda: len(runs) >= 20)
    structlog.configure(**before)

    assert [line["event"] for line in logs] == ["periodic task failed; it is retried"]
