"""Run one server for exactly as long as the process that started it lives.

    python watchdog.py SIGNAL GRACE_S [--user=NAME] COMMAND…

The asker holds the other end of standard input. However it ends (return, exception, SIGTERM,
kill -9), the kernel closes that end, and the guard stops the server with SIGNAL, after GRACE_S
seconds with SIGKILL. The server's process id is the first line on standard output.

Why a process between, and not PR_SET_PDEATHSIG in the asker: that signal is sent when the
*thread* that started the server ends, exists on Linux only, and has to be set between fork and
exec, which is not safe in a process with threads. Here there is one thread, so here it is used as
well: if the watchdog is killed with SIGKILL, the server stops all the same on Linux.

Standard library only, and run by path: it has to start quickly.
"""

import ctypes
import pwd
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

PR_SET_PDEATHSIG = 1  # From <linux/prctl.h>.


def main(arguments: Sequence[str]) -> int:
    """Start the server, wait for its end or the asker's, and return the server's exit code."""
    stop, grace_s, *command = arguments
    user: dict[str, Any] = {}
    if command[0].startswith("--user="):
        user = _as_user(command.pop(0).removeprefix("--user="))
    stop_signal = signal.Signals[stop]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Until there is a server to stop.

    server = subprocess.Popen(  # noqa: S603 - the command is the asker's own.
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        close_fds=False,  # The server takes over the lock on its data directory.
        preexec_fn=_dies_with_its_parent(stop_signal),  # noqa: PLW1509 - there are no threads yet.
        **user,
    )

    def on_sigterm(_signal: int, _frame: FrameType | None) -> None:
        server.send_signal(stop_signal)

    signal.signal(signal.SIGTERM, on_sigterm)
    print(server.pid, flush=True)  # The asker reads it.
    threading.Thread(
        target=_stop_at_end_of_input, args=(server, stop_signal, float(grace_s)), daemon=True
    ).start()
    return server.wait()


def _stop_at_end_of_input(
    server: subprocess.Popen[bytes], stop_signal: signal.Signals, grace_s: float
) -> None:
    sys.stdin.buffer.read()
    server.send_signal(stop_signal)
    try:
        server.wait(grace_s)
    except subprocess.TimeoutExpired:
        server.kill()


def _as_user(name: str) -> dict[str, Any]:
    entry = pwd.getpwnam(name)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _dies_with_its_parent(stop_signal: signal.Signals) -> Callable[[], None]:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def in_child() -> None:
        # SIGTERM is ignored in the guard by now, and what is ignored stays so across exec.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, stop_signal)

    return in_child


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
