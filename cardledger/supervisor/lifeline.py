"""The child's end of supervision: report readiness and heartbeats, never outlive the parent.

The parent holds the other end of standard input. However the parent ends (kill -9 included), the
kernel closes that end, and the child stops as on SIGTERM. Standard library only: a child calls
`watch_parent` before it imports anything heavy.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

READY: Final = b"ready\n"
ALIVE: Final = b"alive\n"
_HEARTBEAT_S: Final = 0.25
_GRACE_S: Final = 25.0  # To finish work in flight; after that the process is killed.


def watch_parent(stale: Sequence[Path]) -> None:
    """Stop this process in good order when its standard input ends.

    `stale` are the parent's ready files, which it cannot remove when it was killed.
    """
    threading.Thread(target=_watch, args=(stale,), name="lifeline", daemon=True).start()


def report_ready() -> None:
    """Tell the parent that this process serves."""
    os.write(sys.stdout.fileno(), READY)


def report_alive(prove: Callable[[], object] = lambda: None) -> None:
    """Tell the parent four times a second from now on that this process runs.

    A process whose `prove` does not return has stopped to work: it is silent, as if frozen.
    """
    threading.Thread(target=_beat, args=(prove,), name="heartbeat", daemon=True).start()


def _beat(prove: Callable[[], object]) -> None:
    while True:
        prove()
        try:
            os.write(sys.stdout.fileno(), ALIVE)
        except OSError:
            return  # The parent has ended, and `_watch` stops this process.
        time.sleep(_HEARTBEAT_S)


def _watch(stale: Sequence[Path]) -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    for path in stale:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    # No process reads the output any more, and a full or broken pipe must not stop the shutdown.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.dup2(null, sys.stderr.fileno())
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)
