"""The child's end of supervision: say when ready, and never outlive the parent.

The parent holds the other end of standard input. However it ends (kill -9 included), the kernel
closes that end, and the child stops as on SIGTERM. Standard library only: it is held before
anything heavy is imported.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

READY: Final = b"ready\n"
_GRACE_S: Final = 25.0  # To finish what is in flight; then the process is gone anyway.


def hold(stale: Sequence[Path]) -> None:
    """End this process in good order when its standard input ends.

    `stale` are the parent's files that say it serves: it cannot remove them when it was killed.
    """
    threading.Thread(target=_watch, args=(stale,), name="leash", daemon=True).start()


def say_ready() -> None:
    """Tell the parent that this process does its work."""
    os.write(sys.stdout.fileno(), READY)


def _watch(stale: Sequence[Path]) -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    for path in stale:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    # Nobody reads what we say any more, and a full or broken pipe must not stop the stopping.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.dup2(nowhere, sys.stderr.fileno())
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)
