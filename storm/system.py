"""The system under test: its own servers, links and processes.

Every process has a link of its own to PostgreSQL and one to Redis. A keeper restarts what has
ended, as an init system would; what a fault has stopped stays stopped until the fault is over.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import psycopg
from psycopg import sql
from redis import Redis

from cardledger.embedded.database_url import DatabaseUrl
from cardledger.embedded.postgres import SOCKET_NAME, EmbeddedPostgres
from cardledger.embedded.redis_server import OwnRedis
from cardledger.install import credentials, databases
from cardledger.install.credentials import Sandbox
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema import roles
from cardledger.schema.roles import Role
from storm.proxy import Link, Network, free_port

WORKERS: Final = ("worker-1", "worker-2")
API: Final = "api"
WEBHOOKS: Final = "webhooks"
CLIENT: Final = "client"  # The storm's own `Client`.
HOT_TABLES: Final = ("entries", "card_transaction_events", "outcomes")
"""The tables that grow fastest."""

SUBMIT: Final = "submit"  # The processes of `cardledger submit`.
ENQUEUE: Final = "enqueue"  # Programs that enqueue events in SQL.

_ROLES: Final = {
    API: Role.API,
    **dict.fromkeys(WORKERS, Role.WORKER),
    WEBHOOKS: Role.WEBHOOKS,
    CLIENT: Role.APP,
    SUBMIT: Role.APP,
    ENQUEUE: Role.SUBMIT,
}
"""The role of the database as which each process runs."""

_START_TIMEOUT_S: Final = 120.0
_STOP_TIMEOUT_S: Final = 40.0
_KEEP_S: Final = 0.1
_SMALL_DISK_MB: Final = 256
_ADDED_SETTINGS: Final = {
    # When each message was decided, by one clock that no process of ours can set wrong.
    "track_commit_timestamp": "on",
    # Which error each session met: the proof of faults that answer wrongly.
    "log_line_prefix": "%m [%p] %e %a ",
    # The directory of a storm is deleted at its end.
    "max_wal_size": "1GB",
}


class Process:
    """A process of the system under test, started again by its keeper whenever it ends."""

    def __init__(
        self, name: str, command: list[str], environment: Mapping[str, str], log: Path
    ) -> None:
        """Describe it; `start` starts it."""
        self.name: Final = name
        self._command: Final = command
        self._environment: Final = dict(environment)
        self._extra: dict[str, str] = {}
        self.log: Final = log
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: Final = threading.RLock()
        self._is_kept = False
        self._restarts = 0  # By the keeper.
        self.starts = 0

    @property
    def ends(self) -> int:
        """How often it has ended without `stop`."""
        with self._guard:
            return self._restarts + (self._is_kept and not self.is_running)

    @property
    def pid(self) -> int:
        """Its process id now, or the last one it had."""
        assert self._child is not None, "start() comes first"
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._child is not None and self._child.poll() is None

    def start(self, extra: Mapping[str, str] | None = None) -> None:
        """Start it, with `extra` variables in its environment, and keep it running."""
        with self._guard:
            self._extra = dict(extra or {})
            self._is_kept = True
            self._spawn()

    def keep(self) -> None:
        """Start it again if it has ended and is to be kept running."""
        with self._guard:
            if self._is_kept and not self.is_running:
                self._restarts += 1
                self._spawn()

    def signal(self, number: signal.Signals) -> int:
        """Send a signal; return the process id that got it."""
        with self._guard:
            pid = self.pid
            os.kill(pid, number)
            return pid

    def stop(self) -> None:
        """End it in good order, and with SIGKILL when that takes too long."""
        with self._guard:
            self._is_kept = False
            if self._child is None:
                return
            with suppress(ProcessLookupError):
                self._child.send_signal(signal.SIGCONT)
                self._child.terminate()
            try:
                self._child.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()

    def _spawn(self) -> None:
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command,
                env=self._environment | self._extra,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.starts += 1


class System:
    """Everything that runs, until the end of the block."""

    def __init__(self, home: Path, *, is_direct: bool = False) -> None:
        """Keep data and logs below `home`.

        With `is_direct` the processes use the servers without links and without a small disk: the
        latencies are those of the system alone.
        """
        self.home: Final = home
        self._is_direct: Final = is_direct
        self.postgres: Final = EmbeddedPostgres(home / "servers")
        self.redis: Final = OwnRedis(home / "servers")
        self.processes: Final[dict[str, Process]] = {}
        self._links: Final[dict[tuple[str, str], Link]] = {}
        self._network: Final = Network()
        self._stack: Final = ExitStack()
        self._stopping: Final = threading.Event()
        self._keeper: Final = threading.Thread(target=self._keep, name="keeper", daemon=True)
        self._secret_key = ""
        self._urls: dict[str, DatabaseUrl] = {}
        self.owner_url = DatabaseUrl("postgresql://")
        self.port = free_port()
        self.sandbox: Sandbox | None = None
        self.small_disk: Path | None = None  # With the hot tables, where one can be mounted.

    def __enter__(self) -> Self:
        """Start servers, links and processes; return when the API serves."""
        self._stack.callback(self._stop)
        try:
            self._start_servers()
            self._stack.enter_context(self._network)
            for name in _ROLES:
                self._links[name, "postgres"] = self._network.link(name, self._postgres_socket)
                self._links[name, "redis"] = self._network.link(name, self._redis_address)
            self._migrate()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self._stack.close()

    def start_processes(self) -> None:
        """Start API and workers, on tables that are ready."""
        self._mount_small_disk()
        commands = {
            API: ["api"],
            **{name: ["worker", "--only", "events"] for name in WORKERS},
            WEBHOOKS: ["worker", "--only", "webhooks"],
        }
        for name, arguments in commands.items():
            self.processes[name] = Process(
                name,
                [sys.executable, "-m", "cardledger", *arguments],
                self.environment(name),
                self.home / f"{name}.log",
            )
            self.processes[name].start()
        self._keeper.start()

    # --- addresses -----------------------------------------------------------------------------

    def postgres_link(self, name: str) -> Link:
        """Return the link of process `name` to PostgreSQL."""
        return self._links[name, "postgres"]

    def redis_link(self, name: str) -> Link:
        """Return the link of process `name` to Redis."""
        return self._links[name, "redis"]

    @property
    def postgres_links(self) -> list[Link]:
        """Every link to PostgreSQL."""
        return [link for (_, kind), link in self._links.items() if kind == "postgres"]

    @property
    def redis_links(self) -> list[Link]:
        """Every link to Redis."""
        return [link for (_, kind), link in self._links.items() if kind == "redis"]

    def database_url(self, name: str) -> DatabaseUrl:
        """Return the URL of process `name`, with the login of its role, over its link."""
        return self._urls[name]

    def redis_url(self, name: str) -> str:
        """Return the URL of Redis over the link of process `name`."""
        if self._is_direct:
            return self.redis.url
        port = self.redis_link(name).port
        parts = urlsplit(self.redis.url)
        return parts._replace(netloc=f":{parts.password}@127.0.0.1:{port}").geturl()

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of process `name`: its links and the settings of the storm."""
        ours = ("CARDLEDGER_", "DATABASE_URL", "REDIS_URL", "PYTEST_", "FORCE_COLOR", "COLUMNS")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        return kept | {
            "DATABASE_URL": self.database_url(name),
            "REDIS_URL": self.redis_url(name),
            "CARDLEDGER_SECRET_KEY": self._secret_key,
            "CARDLEDGER_DATA_DIR": str(self.home / "data"),
            "CARDLEDGER_PORT": str(self.port),
            "CARDLEDGER_REPLY_TIMEOUT_S": "4",
            "CARDLEDGER_WORKER_THREADS": "4",
            "CARDLEDGER_SANDBOX_DELAY_S": "1",
            "CARDLEDGER_WEBHOOK_RETRY_SCALE": "0.0005",
            "CARDLEDGER_WEBHOOK_TIMEOUT_S": "2",
            "CARDLEDGER_RATE_LIMIT": "off",
            "CARDLEDGER_ACCEPT_UNSAFE": "loopback-webhooks",  # Its receivers are here.
        }

    @property
    def base_url(self) -> str:
        """Where the API is."""
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a connection of an outsider: the owner's, past every link."""
        return psycopg.connect(self.owner_url, autocommit=True, application_name="storm")

    def redis_client(self) -> Redis:
        """Return a client of Redis past every link."""
        return Redis.from_url(self.redis.url, socket_timeout=5, socket_connect_timeout=5)

    def role_of(self, name: str) -> str:
        """Return the role of process `name` in PostgreSQL."""
        return roles.name_in(self.owner_url, _ROLES[name])

    @property
    def roles(self) -> list[str]:
        """The roles of all processes in PostgreSQL."""
        return sorted({self.role_of(name) for name in _ROLES})

    # --- servers ---------------------------------------------------------------------------------

    def crash_postgres(self) -> int:
        """Stop PostgreSQL as a crash does; return the process id that ended."""
        pid = self.postgres.pid
        assert pid is not None, "PostgreSQL runs"
        postmaster = _postmaster(self.home / "servers" / "postgres")
        os.kill(postmaster, signal.SIGQUIT)  # "Immediate": no checkpoint, recovery at the start.
        wait_until(lambda: not _exists(postmaster), "PostgreSQL has ended")
        return postmaster

    def crash_redis(self) -> int:
        """Kill Redis; return the process id that ended."""
        pid = self.redis.pid
        assert pid is not None, "Redis runs"
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not _exists(pid), "Redis has ended")
        return pid

    def restore_servers(self) -> None:
        """Start again what a fault has stopped."""
        self.postgres.start()
        self.redis.start()

    def _start_servers(self) -> None:
        self.postgres.start()
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            for name, value in _ADDED_SETTINGS.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
        self.postgres.stop()  # The first of them takes a restart.
        self.postgres.start()
        self.redis.start()

    def _migrate(self) -> None:
        data = self.home / "data"
        data.mkdir(parents=True, exist_ok=True)
        kept = credentials.load(data)
        self._secret_key = credentials.secret_key(kept, None)
        self.owner_url = databases.create(self.postgres.url)
        migrated = databases.prepare(self.owner_url, kept)
        logins = {
            **migrated.logins,
            Role.APP: migrated.app_url,
            Role.SUBMIT: databases.login(self.owner_url, Role.SUBMIT, kept),
        }
        self._urls = {name: logins[role] for name, role in _ROLES.items()}
        if not self._is_direct:  # Now, because PostgreSQL has to answer for it.
            self._urls = {
                name: _over_tcp(url, self.postgres_link(name).port)
                for name, url in self._urls.items()
            }
        self.sandbox = credentials.enter(kept, migrated.app_url, KeyRing(self._secret_key))

    def _mount_small_disk(self) -> None:
        """Move the hot tables to a file system that a fault can fill, if one can be mounted."""
        disk = self.home / "servers" / "disk"
        disk.mkdir()
        size = f"size={_SMALL_DISK_MB}m"
        command = ["mount", "-t", "tmpfs", "-o", size, "cardledger-storm", str(disk)]
        if self._is_direct or shutil.which("mount") is None or os.geteuid() != 0:
            return
        if subprocess.run(command, check=False, capture_output=True).returncode:
            return
        self.small_disk = disk
        owner = (self.home / "servers" / "postgres").stat()
        tables = disk / "tables"
        tables.mkdir(mode=0o700)
        os.chown(tables, owner.st_uid, owner.st_gid)
        with self.connect() as connection:
            place = sql.Literal(str(tables))
            connection.execute(sql.SQL("CREATE TABLESPACE small LOCATION {}").format(place))
            for name in ("storm.probe", *HOT_TABLES):
                table = sql.Identifier(*name.split("."))
                connection.execute(sql.SQL("ALTER TABLE {} SET TABLESPACE small").format(table))

    @property
    def secret_key(self) -> str:
        """The server key of the installation."""
        return self._secret_key

    @property
    def keys(self) -> KeyRing:
        """The keys of the installation."""
        return KeyRing(self._secret_key)

    @property
    def _postgres_socket(self) -> str:
        with psycopg.connect(self.postgres.url) as connection:
            return f"{connection.info.host}/{SOCKET_NAME}"

    @property
    def _redis_address(self) -> tuple[str, int]:
        parts = urlsplit(self.redis.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def _keep(self) -> None:
        while not self._stopping.wait(_KEEP_S):
            for process in self.processes.values():
                process.keep()

    def _stop(self) -> None:
        self._stopping.set()
        if self._keeper.is_alive():
            self._keeper.join()
        for process in self.processes.values():
            process.stop()
        self.redis.stop()
        self.postgres.stop()
        if self.small_disk is not None:
            subprocess.run(["umount", str(self.small_disk)], check=False)  # noqa: S607 - as `mount`


def _over_tcp(url: DatabaseUrl, port: int) -> DatabaseUrl:
    """Return `url`, whose server is on a Unix socket, over a port of the loopback address."""
    with psycopg.connect(url) as connection:
        info = connection.info
        tcp = DatabaseUrl(f"postgresql://127.0.0.1:{port}/")
        over = tcp.with_user(info.user, info.password or "unused", info.dbname)
    return over.with_schema(url.schema)


def _postmaster(data: Path) -> int:
    return int((data / "postmaster.pid").read_text().splitlines()[0])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie has ended too; its guard takes it away.
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def wait_until(
    condition: Callable[[], object],
    expected: str,
    *,
    timeout_s: float = _START_TIMEOUT_S,
    poll_s: float = 0.02,
) -> None:
    """Return when `condition()` is true.

    Raises: TimeoutError saying what was `expected`.
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{expected}: not within {timeout_s:g} s")
        pause.wait(poll_s)
