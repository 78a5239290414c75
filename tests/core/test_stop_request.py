"""A request to stop is received from any thread, and in any thread that a signal is sent to."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from cardledger.workers.process.end import EXIT_CODE
from cardledger.workers.process.stop_request import stop_on
from tests.waiting import LIMIT_S, limit_s

NUMBERS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def from_a_thread_while_waiting(act: Callable[[threading.Thread], None]) -> threading.Thread:
    """Call `act` with a thread other than the main one, from that thread, a moment from now."""
    thread = threading.Timer(0.05, lambda: act(threading.current_thread()))
    thread.start()
    return thread


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_that_another_thread_receives_ends_the_wait_of_the_main_thread(
    number: signal.Signals,
) -> None:
    """The kernel chooses the thread; one that was just thawed is not chosen."""
    handled: list[int] = []

    def send(receiver: threading.Thread) -> None:
        assert receiver.ident is not None
        signal.pthread_kill(receiver.ident, number)

    with stop_on(number, handler=lambda got, _: handled.append(got)) as stop:
        sender = from_a_thread_while_waiting(send)
        assert stop.wait(limit_s())
        sender.join(LIMIT_S)

    assert handled == [number]


def test_a_thread_requests_the_stop_and_the_request_lasts() -> None:
    with stop_on() as stop:
        sender = from_a_thread_while_waiting(lambda _: stop.set())

        assert stop.wait(limit_s())
        sender.join(LIMIT_S)
        assert stop.wait(0)
        assert stop.wait()
    stop.set()  # Of a thread that does not know that the wait is over.


def test_without_a_request_the_wait_ends_at_its_limit() -> None:
    with stop_on() as stop:
        assert not stop.wait(0)
        assert not stop.wait(0.01)


def test_any_number_of_requests_is_one() -> None:
    with stop_on() as stop:
        for _ in range(100_000):
            stop.set()

        assert stop.wait(0)


def test_the_handlers_of_before_come_back() -> None:
    before = [signal.getsignal(number) for number in NUMBERS]

    with stop_on(*NUMBERS):
        assert [signal.getsignal(number) for number in NUMBERS] != before

    assert [signal.getsignal(number) for number in NUMBERS] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_request_is_noticed_by_a_thread_while_the_main_thread_does_something_else() -> None:
    noticed = threading.Event()

    with stop_on() as stop:
        stop.when_requested(noticed.set)
        stop.set()
        assert noticed.wait(limit_s())


def test_the_end_of_the_block_is_no_request() -> None:
    noticed = threading.Event()
    before = set(threading.enumerate())

    with stop_on() as stop:
        stop.when_requested(noticed.set)
        [watch] = set(threading.enumerate()) - before
    watch.join(limit_s())

    assert not watch.is_alive()
    assert not noticed.is_set()


HANGING = """
import signal, sys, threading
from cardledger.workers.process.end import ended_in_time, leave_threads_behind
from cardledger.workers.process.stop_request import stop_on

known = set(threading.enumerate())
with stop_on(signal.SIGTERM) as stop, ended_in_time(stop, 0.2 if sys.argv[1] == "main" else 3600):
    hanging = threading.Thread(target=threading.Event().wait, name="hanging", daemon=False)
    hanging.start()
    print("ready", flush=True)
    stop.wait()
    if sys.argv[1] == "main":
        hanging.join()
    leave_threads_behind(known)
"""


@pytest.mark.parametrize(
    ("what", "code", "line"),
    [("main", EXIT_CODE, "process did not stop in time; ended"), ("thread", 0, "left behind")],
)
def test_a_process_ends_although_a_thread_of_it_hangs(what: str, code: int, line: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HANGING, what], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.terminate()
            assert process.wait(limit_s(10)) == code
            printed = process.stdout.read()
        finally:
            process.kill()

    assert line in printed
    assert "hanging" in printed


MUTE = """
import sys
import structlog
from cardledger.config import logs

logs.configure("info", "json")
"""


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """The end of a pipe on which the next write blocks, because no process reads it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while os.write(writer, bytes(4096)):
            pass
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(("what", "code"), [("main", EXIT_CODE), ("thread", 0)])
def test_a_process_ends_although_standard_error_is_blocked(
    full_pipe: int, what: str, code: int
) -> None:
    assert ends_with(MUTE + HANGING, what, stderr=full_pipe) == code


def test_a_process_ends_while_its_main_thread_waits_to_log(full_pipe: int) -> None:
    # The main thread then holds the lock of the log handler.
    logging_one = HANGING.replace("hanging.join()", "structlog.get_logger().info('stopping')")

    assert ends_with(MUTE + logging_one, "main", stderr=full_pipe) == EXIT_CODE


def ends_with(program: str, what: str, *, stderr: int) -> int:
    """Return the exit code of `program`, which is asked to stop once it is ready."""
    with subprocess.Popen(
        [sys.executable, "-c", program, what], stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.terminate()
            return process.wait(limit_s(10))
        finally:
            process.kill()
