"""The real system for tests: a process of its own on embedded servers, and platforms in it.

For the pytest plugin of `cardledger-client`, and for other test tools. It ends with the process
that has started it, however that ends.
"""

import os
import shutil
import subprocess
import sys
import time
from typing import Final, Self

from cardledger.config.settings import PREFIX
from cardledger.embedded import directories
from cardledger.install import credentials, ready_file
from cardledger.install.credentials import Sandbox
from cardledger.install.ready_file import Running
from cardledger.ledger.storage.secrets.key_ring import KeyRing

_POLL_S: Final = 0.02
_STOP_S: Final = 60.0
_LOG_LINES: Final = 20

# The parent holds the other end of standard input: its end is the end of the system.
_PROGRAM: Final = """
import sys
from pathlib import Path
from cardledger.supervisor import lifeline
lifeline.watch_parent([Path(sys.argv[-1])])
from cardledger.commands.cli import main
main()
"""


class System:
    """`cardledger up` with an empty data directory; use it as a context manager."""

    def __init__(self, *, start_limit_s: float = 120.0) -> None:
        """Start nothing yet; `start_limit_s` is how long the start may take."""
        self._start_limit_s: Final = start_limit_s
        self._home: Final = directories.temporary("cardledger-")
        self._data_dir: Final = self._home / "data"
        self._ready_file: Final = self._home / "ready.json"
        self._log: Final = self._home / "log.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def running(self) -> Running:
        """Addresses and credentials, as the ready file has them now."""
        found = ready_file.read(self._ready_file)
        assert found is not None, "start() comes first"
        return found

    def start(self) -> None:
        """Return once the system serves.

        Raises: RuntimeError with the end of its log, when it does not.
        """
        arguments = ["up", "--data-dir", str(self._data_dir), "--port", "0"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this Python
                [sys.executable, "-c", _PROGRAM, *arguments, "--ready-file", self._ready_file],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + self._start_limit_s
        while not self._ready_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
                raise RuntimeError("\n".join(["cardledger up does not serve:", *lines]))
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stop the system and delete its data."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def platform(self, name: str = "test") -> Sandbox:
        """Return a new platform with a token that may do everything."""
        kept = credentials.load(self._data_dir)
        keys = KeyRing(credentials.secret_key(kept, None))
        return credentials.create_platform(
            self.running.database_url, name, keys, currencies=credentials.SANDBOX_CURRENCIES
        )


def _environment() -> dict[str, str]:
    """Return this environment without the settings and servers of another system."""
    others = (PREFIX, "DATABASE_URL", "REDIS_URL")
    return {name: value for name, value in os.environ.items() if not name.startswith(others)}
