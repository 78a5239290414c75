"""A server process of our own: one owner for each data directory, ended with that owner."""

import fcntl
import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from cardledger.embedded.directories import make_passable

START_TIMEOUT_S = 120.0  # Recovery after a crash of a large database takes its time.
STOP_GRACE_S = 30.0  # Then the watchdog kills; nothing is lost, and the next start recovers.
POLL_S = 0.02


class ServerError(Exception):
    """A server that we need is not there; the message says why and what helps."""


class Server(Protocol):
    """What every kind of server here can do."""

    @property
    def url(self) -> str:
        """Where it answers; meaningful after `start()`."""

    @property
    def origin(self) -> str:
        """Which server this is and where it comes from, for people; meaningful after `start()`."""

    def start(self) -> None:
        """Return when the server answers.

        Raises: ServerError, with nothing left running.
        """

    def stop(self) -> None:
        """Return when a server of ours has ended in good order; others are left alone."""


class OwnServer(ABC):
    """A server that we run in a data directory, or share with the process that runs it there."""

    name: ClassVar[str]

    def __init__(self, data_dir: Path) -> None:
        self.home = data_dir.absolute()
        kind = self.name.lower()
        self.origin = f"own {self.name}"
        self.log = self.home / f"{kind}.log"
        self._lock = self.home / f"{kind}.lock"
        self._url_file = self.home / f"{kind}.url"  # How others who share the directory find it.
        self._url: str | None = None
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The server's process id when it is ours and runs."""
        return self._child.pid if self._child and self._child.running else None

    def start(self) -> None:
        if self._child is not None and self._serves(self._child):
            return
        make_passable(self.home)
        lock = _claim_or_join(self._lock, self._join, self.name)
        if lock is None:
            return
        try:
            self._url_file.unlink(missing_ok=True)
            self._start_own(lock)
            self.origin = self._own_origin()
            write_private(self._url_file, str(self._url))
        except BaseException:
            self.stop()
            raise
        finally:
            os.close(lock)  # The server has inherited it.

    def stop(self) -> None:
        if self._child is not None:
            self._url_file.unlink(missing_ok=True)
            self._child.stop()
            self._child = None

    @abstractmethod
    def _start_own(self, lock: int) -> None:
        """Set `_url` and `_child`, and return when it answers; the child inherits `lock`."""

    @abstractmethod
    def _own_origin(self) -> str:
        """Return what to tell the person about the server that was started."""

    @abstractmethod
    def _answer(self) -> str | None:
        """Return what is wrong with the server at `_url`, `None` when it answers."""

    def _join(self) -> bool:
        """Share the server of the process that has the lock, if it answers already."""
        try:
            self._url = self._url_file.read_text()
        except FileNotFoundError:
            return False
        if self._answer() is not None:
            return False
        self.origin = f"{self.name} of another process with the same data directory"
        return True

    def _serves(self, child: "Child") -> bool:
        """Say whether what was started still answers; take away what is left if not."""
        try:
            wait(self._answer, child, self.name)  # The guard may notice a death a little later.
        except ServerError:
            child.stop()
            return False
        return True


class Child:
    """A server process under its guard: it ends when `stop()` is called or this process ends.

    A process forked from this one holds the guard's leash too; start workers by exec, or the
    server lives until the last of them has ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stop_signal: signal.Signals,
        log: Path,
        lock: int,
        user: str | None = None,
    ) -> None:
        guard = [sys.executable, "-I", "-S", str(Path(__file__).with_name("watchdog.py"))]
        as_user = [] if user is None else [f"--user={user}"]
        self.log = log
        with open(log, "ab", opener=_private) as output:
            self._log_start = output.seek(0, os.SEEK_END)
            self._guard = subprocess.Popen(  # noqa: S603 - the command is our own.
                [*guard, stop_signal.name, str(STOP_GRACE_S), *as_user, *command],
                cwd="/",
                pass_fds=[lock],
                start_new_session=True,  # Ctrl-C is for us; we then stop the server in good order.
                stderr=output,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self._guard.stdout is not None
        with self._guard.stdout as pid_line:
            line = pid_line.readline()
        self.pid = int(line) if line else None

    @property
    def running(self) -> bool:
        return self._guard.poll() is None

    def stop(self) -> None:
        """Let go of the leash and wait for the end."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(STOP_GRACE_S + 10)

    def last_words(self) -> str:
        """Return the end of what this run has logged."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read()[-2000:].decode(errors="replace").strip()


def _claim_or_join(path: Path, join: Callable[[], bool], name: str) -> int | None:
    """Return the lock on a data directory, or `None` after joining the server of its holder."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return lock
        if join():
            return None
        if time.monotonic() > deadline:
            raise ServerError(f"another process holds {path}, but its {name} does not answer")
        time.sleep(POLL_S)


def wait(answer: Callable[[], str | None], child: Child, name: str) -> None:
    """Wait until the server answers, as long as it lives."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while (problem := answer()) is not None:
        if not child.running:
            raise ServerError(f"{name} did not start; {child.log} says:\n{child.last_words()}")
        if time.monotonic() > deadline:
            raise ServerError(f"{name} runs but does not answer: {problem}")
        time.sleep(POLL_S)


def files_of_wheel(package: str, name: str) -> list[Path]:
    """Return the files called `name` of an installed package; none when it is not installed."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in files if file.name == name]


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.rename(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
