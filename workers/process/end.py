"""The end of a process: in good order when that is possible, and in time whatever happens."""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import structlog

from cardledger.workers.process.stop_request import StopRequest

STOP_S: Final = 7.0
"""For the parts of a process to end in good order."""

END_S: Final = 9.0
"""From the request to stop to the end of the process."""

_REPORT_S: Final = 0.5  # For its last lines.

EXIT_CODE: Final = 75
"""Of a process that did not stop in good order (EX_TEMPFAIL)."""

_log = structlog.get_logger()


@contextmanager
def ended_in_time(stop: StopRequest, limit_s: float = END_S) -> Iterator[None]:
    """For the length of a block, end the process `limit_s` after `stop` is requested.

    What it was doing is rolled back by PostgreSQL, which has everything that was acknowledged.
    """
    done = threading.Event()

    def end() -> None:
        if not done.wait(limit_s):
            _exit(
                EXIT_CODE,
                lambda: _log.error(
                    "process did not stop in time; ended", limit_s=limit_s, busy=_activities()
                ),
            )

    stop.when_requested(end)
    try:
        yield
    finally:
        done.set()


def leave_threads_behind(known: set[threading.Thread]) -> None:
    """End the process if threads run that are not `known`: its interpreter would wait for them."""
    threads = [
        thread for thread in threading.enumerate() if not thread.daemon and thread not in known
    ]
    for thread in threads:
        thread.join(0.1)  # Those of a pool end a moment after it.
    busy = [thread.name for thread in threads if thread.is_alive()]
    if busy:
        _exit(0, lambda: _log.warning("threads left behind", threads=busy))


def _exit(code: int, report: Callable[[], object]) -> NoReturn:
    """End the process with `report` as its last lines, if they can be written in time."""

    def write() -> None:
        report()
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()

    # In a thread of its own: a pipe that is full and that no process reads blocks for good, and so
    # does the lock of the log handler while another thread writes to that pipe.
    thread = threading.Thread(target=write, name="last lines", daemon=True)
    thread.start()
    thread.join(_REPORT_S)
    os._exit(code)


def _activities() -> dict[str, str]:
    """Return where each thread is that the end of the process waits for."""
    frames = sys._current_frames()  # noqa: SLF001 - there is no public function for it
    waited_for = [thread for thread in threading.enumerate() if not thread.daemon]
    return {
        thread.name: str(traceback.extract_stack(frames[thread.ident], limit=1)[0])
        for thread in waited_for
        if thread.ident in frames
    }
