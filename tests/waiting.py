"""Time limits of the tests: each grows with the present load of the machine.

A test waits for a condition (`eventually`), or gives a library or a process a limit (`limit_s`).
No test sleeps for a guessed time, and none asserts how fast a loaded machine is. A test that passes
never waits for a limit to end, so limits are generous: only a failing test pays for them.

`TEST_TIME_SCALE` multiplies every limit, for a machine whose slowness the measurement misses.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

LIMIT_S: Final = 60.0
"""The limit on an idle machine, where a test names none."""

TIME_SCALE: Final = float(os.environ.get("TEST_TIME_SCALE", "1"))

_REMEASURE_S: Final = 2.0  # How long one measurement is valid; it takes `_SAMPLE_S`.
_SAMPLE_S: Final = 0.01  # Processor time of one sample: longer than a scheduler's time slice.
_STALL_S: Final = 5.0  # What one check of a deadline counts at most: a suspended process waits.
_POLL_S: Final = 0.01

Result = TypeVar("Result")


class _Slowness:
    """Measures how many times slower than on an idle machine a process runs now."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._measured_at = float("-inf")
        self._factor = 1.0

    def __call__(self) -> float:
        """Return the factor, at least 1, measured within the last two seconds."""
        with self._lock:
            if time.monotonic() - self._measured_at >= _REMEASURE_S:
                self._factor = max(1.0, _processor_share(), _load_per_core())
                self._measured_at = time.monotonic()
            return self._factor


def _processor_share() -> float:
    """Return wall time over processor time of a busy loop: 1 when no other process competes."""
    began, used = time.perf_counter(), time.thread_time()
    while (spent := time.thread_time() - used) < _SAMPLE_S:
        pass
    return (time.perf_counter() - began) / spent


def _load_per_core() -> float:
    """Return how many processes want each core: now and, as a mean, in the last minute."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(os.getloadavg()[0], _running()) / (cores or 1)


def _running() -> float:
    """Return how many processes run or wait for a processor now; 0 where Linux does not say it."""
    try:
        with open("/proc/loadavg", encoding="ascii") as file:  # noqa: PTH123 - no path to handle
            return float(file.read().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 0.0


slowness: Final = _Slowness()


def limit_s(seconds: float = LIMIT_S) -> float:
    """Return the time limit for what takes `seconds` at most on an idle machine.

    For waits of libraries and processes, which cannot be extended once they have begun: twice
    what the machine's load requires now, because the load may grow during the wait.
    """
    return seconds * TIME_SCALE * 2 * slowness()


class Deadline:
    """A limit in seconds of an idle machine; a second of a machine under load counts less."""

    def __init__(
        self,
        seconds: float = LIMIT_S,
        *,
        clock: Callable[[], float] = time.monotonic,
        slowness: Callable[[], float] = slowness,
    ) -> None:
        self._clock: Final = clock
        self._slowness: Final = slowness
        self._left = seconds * TIME_SCALE
        self._checked_at = clock()

    @property
    def has_passed(self) -> bool:
        """Whether the limit is used up. The load is measured again as the wait goes on."""
        now = self._clock()
        self._left -= min(now - self._checked_at, _STALL_S) / self._slowness()
        self._checked_at = now
        return self._left <= 0


class Running(Protocol):
    """A process, such as `subprocess.Popen`."""

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        ...


def eventually(
    look: Callable[[], Result | None],
    *,
    timeout_s: float = LIMIT_S,
    poll_s: float = _POLL_S,
    message: str = "the condition did not become true",
    process: Running | None = None,
) -> Result:
    """Return the first true result of `look`, which is called again and again.

    `process`, if given, has to run meanwhile.
    Raises: AssertionError with `message` after `timeout_s` seconds of an idle machine.
    """
    deadline = Deadline(timeout_s)
    pause = threading.Event()
    while not (result := look()):
        if process is not None:
            assert process.poll() is None, f"the process ended with {process.returncode}"
        assert not deadline.has_passed, f"{message} within {timeout_s:g} s"
        pause.wait(poll_s)
    return result


def processor_s(work: Callable[[], object]) -> float:
    """Return the processor time that `work` takes in this thread: the least of three runs."""

    def once() -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    return min(once() for _ in range(3))
