"""The parent's end of supervision: processes that are restarted when they die or freeze.

Each child has a process group of its own (Ctrl-C is for the parent, which stops them in order), a
lifeline on standard input (`lifeline`), and reports on standard output when it is ready, and from
then on that it is alive. What it writes to standard error is its log.
"""

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import IO, Final

from cardledger.supervisor.lifeline import ALIVE, READY
from cardledger.supervisor.silence import Silence

_FIRST_DELAY_S: Final = 0.1
_DELAY_LIMIT_S: Final = 10.0
_STEADY_S: Final = 20.0  # A process that ran for so long did start successfully.
_LAST_LINES: Final = 30  # Of the log.

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
        """Run `python -m cardledger` with `arguments`; call `on_change` at every change."""
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
        self._silence = Silence()
        self._last_log_lines: Final[deque[str]] = deque(maxlen=_LAST_LINES)
        self._thread: Final = threading.Thread(target=self._keep_alive, name=name, daemon=True)

    @property
    def pid(self) -> int | None:
        """The process id, None while there is no process."""
        process = self._process
        return process.pid if process and process.poll() is None else None

    @property
    def is_ready(self) -> bool:
        """Whether the process has reported that it serves."""
        return self._ready.is_set() and self.pid is not None

    @property
    def last_log_lines(self) -> str:
        """The end of its log."""
        return "\n".join(self._last_log_lines)

    def start(self) -> None:
        """Start it and keep it alive; return at once."""
        self._thread.start()

    def restart(self, environment: Mapping[str, str]) -> None:
        """Stop it in good order and start it again with another environment."""
        self.environment = environment
        self._signal(signal.SIGTERM)

    def kill_if_silent(self) -> None:
        """Kill it, to be started again, when it is frozen."""
        silence = self._silence
        if silence.has_lasted() and not self._stopping.is_set() and self.pid is not None:
            self._silence = Silence()
            self._log(self.name, f"silent for {silence.limit_s:g} s; killing it")
            self._signal(signal.SIGKILL)

    def stop(self, grace_s: float) -> None:
        """Stop it in good order, or kill it after `grace_s` seconds; return when it has ended."""
        with self._lock:
            self._stopping.set()
        self._signal(signal.SIGTERM)
        self._thread.join(grace_s)
        if self._thread.is_alive():
            self.kill()
            self._thread.join()

    def kill(self) -> None:
        """Kill it; the database rolls back what was not committed."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def _keep_alive(self) -> None:
        delay_s = _FIRST_DELAY_S
        while True:
            started_at = monotonic()
            process = self._spawn()
            if process is None:
                return
            self._on_change()
            code = process.wait()
            assert process.stdin is not None
            process.stdin.close()  # The lifeline of a process that has ended.
            self._ready.clear()
            if self._stopping.is_set():
                return
            self.deaths += 1
            if monotonic() - started_at >= _STEADY_S:
                delay_s = _FIRST_DELAY_S
            self._log(self.name, f"{_ended(code)}; restarting in {delay_s:g} s")
            self._stopping.wait(delay_s)
            delay_s = min(2 * delay_s, _DELAY_LIMIT_S)

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
            self._silence = silence = Silence()
        assert process.stdout is not None
        assert process.stderr is not None
        _in_thread(partial(self._read_output, silence), process.stdout)
        _in_thread(self._read_log, process.stderr)
        return process

    def _read_output(self, silence: Silence, output: IO[bytes]) -> None:
        with output:
            for line in output:
                if line == ALIVE:
                    silence.end()
                elif line == READY:
                    self._ready.set()
                    self._on_change()
                else:
                    self._log_line(line)

    def _read_log(self, output: IO[bytes]) -> None:
        with output:
            for line in output:
                self._log_line(line)

    def _log_line(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\n")
        self._last_log_lines.append(text)
        self._log(self.name, text)


def _in_thread(run: Callable[[IO[bytes]], None], output: IO[bytes]) -> None:
    threading.Thread(target=run, args=(output,), daemon=True).start()


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"
