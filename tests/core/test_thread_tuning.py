"""A thread that has waited gets the interpreter lock back soon, beside one that computes."""

import select
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from cardledger.config import thread_tuning

WAITS = 30


@pytest.fixture
def computing() -> Iterator[None]:
    """Another thread computes."""
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(range(100))

    thread = threading.Thread(target=compute)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.fixture
def usual_turns() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield
    sys.setswitchinterval(interval)


def seconds_of_waits() -> float:
    """Return how long some waits of a millisecond take: for a system call, then for the lock."""
    began = time.perf_counter()
    for _ in range(WAITS):
        select.select([], [], [], 0.001)
    return time.perf_counter() - began


@pytest.mark.usefixtures("usual_turns", "computing")
def test_a_thread_that_has_waited_goes_on_sooner() -> None:
    usual = seconds_of_waits()
    thread_tuning.take_short_turns()
    short = seconds_of_waits()

    assert short < usual / 2, (short, usual)
