"""The parent's end of supervision: processes that are started again whenever they die.

Each child has a process group of its own (Ctrl-C is for the parent, which stops them in order), a
leash on standard input (`child_lifeline`), and says on standard output when it is ready. What it
writes to standard error is its log.
"""

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import IO, Final

from cardledger.supervisor.child_lifeline import READY

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0
_STEADY_S: Final = 20.0  # Who lived so long did not die of its own start.
_LAST_WORDS: Final = 30  # Lines.

Log = Callable[[str, str], None]
"""Takes the name of a child and a line of its log."""


class Supervised:
    """One child process, kept alive until `stop`."""

    def __init__(  # noqa: PLR0913 - what a process is started with, by name
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Log,
        on_change: Callable[[], None],
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Run `python -m cardledger` with `arguments`; `on_change` is told of every new process."""
        self.name: Final = name
        self.environment = environment  # Of the next start.
        self.deaths = 0
        self._command: Final = [sys.executable, "-m", "cardledger", *arguments]
        self._log: Final = log
        self._on_change: Final = on_change
        self._pass_fds: Final = tuple(pass_fds)
        self._lock: Final = threading.Lock()
        self._stopping: Final = threading.Event()
        self._ready: Final = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._last_words: Final[deque[str]] = deque(maxlen=_LAST_WORDS)
        self._thread: Final = threading.Thread(target=self._keep_alive, name=name, daemon=True)

    @property
    def pid(self) -> int | None:
        """The process id, None while there is no process."""
        process = self._process
        return process.pid if process and process.poll() is None else None

    @property
    def is_ready(self) -> bool:
        """Whether the process has said that it works."""
        return self._ready.is_set() and self.pid is not None

    @property
    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self._last_words)

    def start(self) -> None:
        """Start it and keep it alive; returns at once."""
        self._thread.start()

    def restart(self, environment: Mapping[str, str]) -> None:
        """Have it stop in good order and start again with another environment."""
        self.environment = environment
        self._signal(signal.SIGTERM)

    def stop(self, grace_s: float) -> None:
        """Stop it in good order, after `grace_s` seconds at once; return when it is gone."""
        with self._lock:
            self._stopping.set()
        self._signal(signal.SIGTERM)
        self._thread.join(grace_s)
        if self._thread.is_alive():
            self.kill()
            self._thread.join()

    def kill(self) -> None:
        """End it at once; the database forgets what was not committed."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def _keep_alive(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            born = monotonic()
            process = self._spawn()
            if process is None:
                return
            self._on_change()
            code = process.wait()
            assert process.stdin is not None
            process.stdin.close()  # Its leash, which nobody is at the end of any more.
            self._ready.clear()
            if self._stopping.is_set():
                return
            self.deaths += 1
            if monotonic() - born >= _STEADY_S:
                pause_s = _FIRST_PAUSE_S
            self._log(self.name, f"{_ended(code)}; it is started again in {pause_s:g} s")
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopping.is_set():
                return None
            process = subprocess.Popen(  # noqa: S603 - this very program.
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environment),
                pass_fds=self._pass_fds,
                process_group=0,
            )
            self._process = process
        assert process.stdout is not None
        assert process.stderr is not None
        _in_thread(self._hear_ready, process.stdout)
        _in_thread(self._pass_on, process.stderr)
        return process

    def _hear_ready(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                if line == READY:
                    self._ready.set()
                    self._on_change()
                else:
                    self._say(line)

    def _pass_on(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                self._say(line)

    def _say(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\n")
        self._last_words.append(text)
        self._log(self.name, text)


def _in_thread(run: Callable[[IO[bytes]], None], output: IO[bytes]) -> None:
    threading.Thread(target=run, args=(output,), daemon=True).start()


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"
