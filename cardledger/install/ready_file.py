"""What runs here: the file that says where, and the lock that says whether that is still true.

`up` keeps the file in its data directory, so that `submit`, `verify` and `doctor` find the system
without configuration, and writes a copy to `--ready-file`.
"""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cardledger.config.errors import CommandError

READY_FILE: Final = "up.json"
_LOCK: Final = "up.lock"
_PATIENCE_S: Final = 0.5
_RETRY_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A system that serves. `database_url` is that of the application's role.

    `finance_url` reads the books for finance; None when its role has no login that is known here.
    """

    base_url: str
    client_id: str
    client_secret: str
    database_url: str
    finance_url: str | None
    redis_url: str
    webhook_public_key: str
    webhook_secret: str
    pids: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """Return the content of the ready file."""
        return json.dumps(
            {
                "baseUrl": self.base_url,
                "clientId": self.client_id,
                "clientSecret": self.client_secret,
                "databaseUrl": self.database_url,
                "financeUrl": self.finance_url,
                "redisUrl": self.redis_url,
                "webhookPublicKey": self.webhook_public_key,
                "webhookSecret": self.webhook_secret,
                "pids": dict(self.pids),
            },
            indent=2,
        )


def claim(data_dir: Path) -> int:
    """Return the lock on `data_dir`, free again when this process ends, however it ends.

    Raises: CommandError when another system runs there.
    """
    lock = os.open(data_dir / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    # `find` of another command holds it for a moment, which is no system.
    deadline = time.monotonic() + _PATIENCE_S
    while not _locked(lock):
        if time.monotonic() > deadline:
            os.close(lock)
            raise CommandError(
                f"another cardledger runs in {data_dir}; stop it, or choose another --data-dir"
            )
        time.sleep(_RETRY_S)
    return lock


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find(data_dir: Path) -> Running | None:
    """Return the system that runs in `data_dir` and is ready, if there is one."""
    return read(data_dir / READY_FILE) if _is_claimed(data_dir) else None


def _is_claimed(data_dir: Path) -> bool:
    try:
        lock = os.open(data_dir / _LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def read(path: Path) -> Running | None:
    """Return what a ready file says; None when it is not there, or is something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Running(
            base_url=content["baseUrl"],
            client_id=content["clientId"],
            client_secret=content["clientSecret"],
            database_url=content["databaseUrl"],
            finance_url=content.get("financeUrl"),  # An earlier release does not write it.
            redis_url=content["redisUrl"],
            webhook_public_key=content["webhookPublicKey"],
            webhook_secret=content["webhookSecret"],
            pids=content["pids"],
        )
    except (OSError, ValueError, KeyError):
        return None


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)
