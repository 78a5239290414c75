"""Worker processes of tests, forked from a process that has imported the worker before.

To import it anew for every test module took more than a second of processor time each.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import Final

from cardledger.workers.process.config import WorkerConfig
from cardledger.workers.process.main import WorkerProcess, run
from tests import fence
from tests.command_process import FORKING
from tests.waiting import limit_s


@contextmanager
def worker_process(config: WorkerConfig) -> Iterator[int]:
    """Run a worker in a process of its own, which looks up no host names; yield its id."""
    with started(config) as process:
        assert process.pid is not None
        yield process.pid


@contextmanager
def started(config: WorkerConfig) -> Iterator[BaseProcess]:
    """Do as `worker_process` does, and yield the process."""
    process = FORKING.Process(target=_work, args=(config,))
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join(limit_s())
        assert process.exitcode is not None, "the worker did not stop"


@contextmanager
def hanging(config: WorkerConfig) -> Iterator[BaseProcess]:
    """Run a worker whose main thread hangs once everything runs; yield its process."""
    hangs = FORKING.Event()
    process = FORKING.Process(target=run, args=(config,), kwargs={"ready": partial(_hang, hangs)})
    process.start()
    try:
        assert hangs.wait(limit_s())
        yield process
    finally:
        process.kill()
        process.join(limit_s())


def _hang(hangs: Event, _: WorkerProcess) -> None:
    hangs.set()
    threading.Event().wait()


class WorkerChild:
    """A worker in a process of its own, for tests that signal and kill it."""

    def __init__(self, config: WorkerConfig) -> None:
        self._process: Final = FORKING.Process(target=run, args=(config,))
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code, as `returncode`."""
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait(self) -> int:
        """Return the exit code once it has ended."""
        self._process.join(limit_s())
        assert self.returncode is not None, "the worker did not stop"
        return self.returncode

    def kill(self) -> None:
        """Kill it, if it runs, and wait for its end."""
        self._process.kill()
        self.wait()


def _work(config: WorkerConfig) -> None:
    fence.install()
    run(config)
