"""The whole system in one process tree: servers, schema, sandbox platform, API, workers."""

import errno
import http.client
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from pydantic import SecretStr

from cardledger.api import BASE_PATH
from cardledger.config.configuration import writable_directory
from cardledger.config.errors import CommandError
from cardledger.config.settings import PREFIX, Settings
from cardledger.embedded.servers import (
    DatabaseUrl,
    EmbeddedPostgres,
    GivenPostgres,
    GivenRedis,
    OwnRedis,
    ServerError,
    find_postgres,
    find_redis,
)
from cardledger.install import credentials, databases
from cardledger.install import ready_file as running
from cardledger.install.credentials import Credentials, Sandbox
from cardledger.install.databases import Migrated
from cardledger.install.ready_file import Running
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.supervisor.child import Log, Supervised

_READY_TIMEOUT_S: Final = 60.0
_DEATHS_AT_START: Final = 3  # More than that is no accident.
_POLL_S: Final = 0.02
_API_STOP_S: Final = 15.0
_WORKER_STOP_S: Final = 30.0
_PORTS_TRIED: Final = 100
_WATCH_EVERY_S: Final = 0.5
_BACKLOG: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that has been set up, for people; `cost` is what it costs to have it this way."""

    name: str
    detail: str
    seconds: float
    cost: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run."""

    settings: Settings
    workers: int = 1
    any_port: bool = False  # Take the next free one when the port is taken.
    ready_file: Path | None = None


class System:
    """Everything that runs, until `stop`.

    Children that die are started again, and so are servers of ours.
    """

    def __init__(self, plan: Plan, *, log: Log, say: Callable[[Step], None]) -> None:
        """Set nothing up yet; `log` gets the children's logs, `say` hears of every step."""
        self._plan: Final = plan
        self._settings: Final = plan.settings
        self._log: Final = log
        self._say: Final = say
        self._data_dir: Final = plan.settings.data_dir
        self._stopping: Final = threading.Event()
        self._publishing: Final = threading.Lock()
        self._lock: int | None = None
        self._socket: socket.socket | None = None
        self._postgres: GivenPostgres | EmbeddedPostgres | None = None
        self._redis: GivenRedis | OwnRedis | None = None
        self._secret_key = ""
        self._migrated: Migrated | None = None
        self._sandbox: Sandbox | None = None
        self._children: list[Supervised] = []
        self._watcher: threading.Thread | None = None
        self._is_ready = False
        self._published: dict[str, int] = {}

    # --- up --------------------------------------------------------------------------------

    def start(self) -> Running:
        """Set everything up and return when it serves.

        Raises: CommandError, ServerError; then `stop` takes away what had been started.
        """
        self._lock = running.claim(writable_directory(self._data_dir))
        for path in self._ready_files():
            path.unlink(missing_ok=True)
        self._socket = self._listen()
        kept = credentials.load(self._data_dir)
        self._secret_key = credentials.secret_key(kept, _secret(self._settings.secret_key))
        owner = self._start_postgres()
        self._start_redis()
        self._migrate(owner, kept)
        self._start_children()
        self._wait_until_ready()
        self._watcher = threading.Thread(target=self._watch_servers, name="servers", daemon=True)
        self._watcher.start()
        return self.running

    @property
    def running(self) -> Running:
        """Where it is and how to get in."""
        assert self._sandbox is not None, "start() comes first"
        assert self._migrated is not None
        assert self._redis is not None
        return Running(
            base_url=f"{self._origin}{BASE_PATH}",
            client_id=self._sandbox.access.client_id,
            client_secret=self._sandbox.access.client_secret,
            database_url=self._migrated.app_url,
            redis_url=self._redis.url,
            webhook_public_key=self._sandbox.public_key,
            webhook_secret=self._sandbox.webhook_secret,
            pids=self._pids(),
        )

    @property
    def platform_id(self) -> str:
        """The sandbox's platform."""
        assert self._sandbox is not None, "start() comes first"
        return self._sandbox.access.platform_id

    @property
    def owner_url(self) -> DatabaseUrl:
        """The database's URL for whoever may do everything there."""
        assert self._postgres is not None, "start() comes first"
        return self._owner(self._postgres)

    def _start_postgres(self) -> DatabaseUrl:
        began = time.monotonic()
        self._postgres = find_postgres(_secret(self._settings.database_url), self._data_dir)
        self._postgres.start()
        owner = self._owner(self._postgres)
        is_embedded = isinstance(self._postgres, EmbeddedPostgres)
        self._say(
            Step(
                name="PostgreSQL",
                detail=self._postgres.origin,
                seconds=time.monotonic() - began,
                cost="one machine, no replica, no backup" if is_embedded else None,
            )
        )
        return owner

    def _owner(self, postgres: GivenPostgres | EmbeddedPostgres) -> DatabaseUrl:
        if isinstance(postgres, EmbeddedPostgres):
            return databases.create(postgres.url, schema=self._settings.database_schema)
        return postgres.url

    def _start_redis(self) -> None:
        began = time.monotonic()
        self._redis = find_redis(_secret(self._settings.redis_url), self._data_dir)
        self._redis.start()
        self._say(
            Step(
                name="Redis",
                detail=self._redis.origin,
                seconds=time.monotonic() - began,
            )
        )

    def _migrate(self, owner: DatabaseUrl, kept: Credentials) -> None:
        began = time.monotonic()
        app_password = _secret(self._settings.app_password)
        self._migrated = databases.prepare(owner, kept, app_password=app_password)
        self._sandbox = credentials.enter(kept, self._migrated.app_url, KeyRing(self._secret_key))
        was = self._migrated.was
        told = "as it was" if was == self._migrated.revision else f"was {was or 'empty'}"
        foreign = self._sandbox.foreign
        self._say(
            Step(
                name="Schema",
                detail=f"{self._migrated.revision} ({told}), application role"
                f" {databases.role_of(self._migrated.app_url)}",
                seconds=time.monotonic() - began,
                cost=f"{foreign} other platform(s) here are sealed with another secret key: their"
                " webhooks wait until it is given in CARDLEDGER_SECRET_KEY"
                if foreign
                else None,
            )
        )

    def _start_children(self) -> None:
        assert self._socket is not None
        listen_fd = self._socket.fileno()
        workers = [f"worker-{number}" for number in range(1, self._plan.workers + 1)]
        self._children = [
            self._child("api", ["api", "--listen-fd", str(listen_fd)], [listen_fd]),
            *(self._child(name, ["worker", "--only", "events"], []) for name in workers),
            self._child("webhooks", ["worker", "--only", "webhooks"], []),
        ]
        for child in self._children:
            child.start()

    def _child(self, name: str, arguments: Sequence[str], pass_fds: Sequence[int]) -> Supervised:
        stale = [part for path in self._ready_files() for part in ("--stale", str(path))]
        return Supervised(
            name,
            [*arguments, "--supervised", name, *stale],
            environment=self._environment(),
            log=self._hear,
            on_change=self._publish,
            pass_fds=pass_fds,
        )

    def _hear(self, name: str, line: str) -> None:
        """Pass on a line of a child's log; the last one is that it has ended."""
        self._log(name, line)
        if self._published != self._pids():
            self._publish()

    def _environment(self) -> dict[str, str]:
        """Return the children's environment: secrets travel in it, never on a command line."""
        assert self._migrated is not None
        assert self._redis is not None
        environment = dict(os.environ)
        environment.pop(f"{PREFIX}APP_PASSWORD", None)
        return environment | {
            "DATABASE_URL": self._migrated.app_url,
            "REDIS_URL": self._redis.url,
            f"{PREFIX}SECRET_KEY": self._secret_key,
            f"{PREFIX}DATA_DIR": str(self._data_dir),
        }

    def _wait_until_ready(self) -> None:
        began = time.monotonic()
        # Webhooks wait for their process, and nobody waits for them.
        api, *workers, _webhooks = self._children
        while not (self._answers() and any(worker.is_ready for worker in workers)):
            for child in self._children:
                if child.deaths >= _DEATHS_AT_START:
                    raise CommandError(f"{child.name} does not start; it says:\n{child.last_words}")
            if time.monotonic() - began > _READY_TIMEOUT_S:
                raise CommandError(
                    f"nothing serves after {_READY_TIMEOUT_S:g} s; the API says:\n{api.last_words}"
                )
            if self._stopping.wait(_POLL_S):
                raise CommandError("stopped before it was ready")
        self._is_ready = True
        self._publish()
        seconds = time.monotonic() - began
        self._say(Step(name="API", detail=f"{self._origin}{BASE_PATH}", seconds=seconds))
        threads = self._settings.worker_threads
        plural = "" if len(workers) == 1 else "es"
        detail = f"{len(workers)} process{plural} of {threads} threads: events, cards"
        self._say(Step(name="Workers", detail=f"{detail}; 1: webhooks", seconds=seconds))

    def _answers(self) -> bool:
        if not self._children[0].is_ready:
            return False
        host, port = self._address()
        connection = http.client.HTTPConnection(host, port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    # --- the address -----------------------------------------------------------------------

    def _listen(self) -> socket.socket:
        """Take the port now: nobody else can, and requests wait while the API starts again."""
        host, port = self._settings.host, self._settings.port
        tries = _PORTS_TRIED if self._plan.any_port and port else 1
        for candidate in range(port, min(port + tries, 65536)):
            try:
                return _bound(host, candidate)
            except OSError as error:
                if candidate + 1 < min(port + tries, 65536):
                    continue
                raise CommandError(_cannot_listen(host, port, error)) from None
        raise CommandError(f"no free port from {port} on")

    @property
    def port(self) -> int:
        """The port that the API listens on."""
        assert self._socket is not None, "start() comes first"
        port: int = self._socket.getsockname()[1]
        return port

    def _address(self) -> tuple[str, int]:
        """Return where this machine reaches the API."""
        host = self._settings.host
        return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host), self.port  # noqa: S104

    @property
    def _origin(self) -> str:
        host, port = self._address()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    # --- while it runs ---------------------------------------------------------------------

    def _ready_files(self) -> list[Path]:
        files = [self._data_dir / running.READY_FILE]
        return [*files, self._plan.ready_file] if self._plan.ready_file else files

    def _publish(self) -> None:
        """Write the ready files anew: a child has changed."""
        with self._publishing:
            if self._is_ready and not self._stopping.is_set():
                now = self.running
                for path in self._ready_files():
                    running.write_private(path, now.text())
                self._published = dict(now.pids)

    def _pids(self) -> dict[str, int]:
        found = {child.name: child.pid for child in self._children}
        if isinstance(self._postgres, EmbeddedPostgres):
            found["postgres"] = self._postgres.pid
        if isinstance(self._redis, OwnRedis):
            found["redis"] = self._redis.pid
        return {name: pid for name, pid in found.items() if pid is not None}

    def _watch_servers(self) -> None:
        """Start our own servers again when they die; the children find PostgreSQL by themselves."""
        while not self._stopping.wait(_WATCH_EVERY_S):
            with suppress(ServerError):
                self._revive(self._postgres)
                self._revive(self._redis)

    def _revive(
        self, server: GivenPostgres | EmbeddedPostgres | GivenRedis | OwnRedis | None
    ) -> None:
        if not isinstance(server, EmbeddedPostgres | OwnRedis) or _runs(server):
            return
        self._publish()  # Without it, for as long as its start takes.
        was = server.url
        server.start()
        if _runs(server):  # Else it is shared with another process, and had been all the time.
            self._log("up", f"{server.origin} was gone and has been started again")
            self._publish()
        if server.url != was:
            for child in self._children:
                child.restart(self._environment())

    # --- down ------------------------------------------------------------------------------

    def stop(self, *, at_once: Callable[[], bool] = lambda: False) -> None:
        """Stop everything, callers first and servers last; nothing accepted is lost.

        While it waits, `at_once` is asked whether to kill what still runs.
        """
        self._stopping.set()
        with self._publishing:
            for path in self._ready_files() if self._lock is not None else ():
                path.unlink(missing_ok=True)
        # It may be asked to stop before its watcher has started.
        if self._watcher is not None and self._watcher.ident is not None:
            self._watcher.join()
        if self._socket is not None:
            self._socket.close()
        impatient = threading.Thread(target=self._kill_when, args=(at_once,), daemon=True)
        impatient.start()
        for child, grace_s in self._by_turn():
            child.stop(grace_s)
        for server in (self._redis, self._postgres):
            if server is not None:
                server.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _by_turn(self) -> Iterator[tuple[Supervised, float]]:
        for child in self._children:
            if child.name == "api":
                yield child, _API_STOP_S
        workers = [child for child in self._children if child.name != "api"]
        stopping = [
            threading.Thread(target=worker.stop, args=(_WORKER_STOP_S,)) for worker in workers[1:]
        ]
        for thread in stopping:
            thread.start()
        for worker in workers[:1]:
            yield worker, _WORKER_STOP_S
        for thread in stopping:
            thread.join()

    def _kill_when(self, at_once: Callable[[], bool]) -> None:
        while any(child.pid is not None for child in self._children):
            if at_once():
                for child in self._children:
                    child.kill()
                return
            time.sleep(0.05)


class Signals:
    """SIGINT, SIGTERM and SIGHUP: while something starts they interrupt it; later they are noted.

    A second one while everything stops asks for haste.
    """

    def __init__(self) -> None:
        self.count = 0
        self._interrupts = True
        self._asked: Final = threading.Event()

    def wait(self) -> None:
        """Return when somebody asks to stop."""
        while not self._asked.wait(1.0):
            pass

    def note_only(self) -> None:
        """From now on nothing is interrupted."""
        self._interrupts = False

    @property
    def is_urgent(self) -> bool:
        """Whether somebody has asked twice."""
        return self.count > 1

    @contextmanager
    def caught(self) -> Iterator["Signals"]:
        """Catch them for the length of a block."""

        def catch(_number: int, _frame: FrameType | None) -> None:
            self.count += 1
            self._asked.set()
            if self._interrupts:
                self._interrupts = False
                raise KeyboardInterrupt

        before = {
            number: signal.signal(number, catch)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens, so that the port is ours."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _cannot_listen(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken; choose another --port (0 takes a free one)"
    if error.errno == errno.EACCES:
        return f"port {port} is not for ordinary users; choose a --port above 1023"
    return f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --host"


def _runs(server: EmbeddedPostgres | OwnRedis) -> bool:
    return server.pid is not None


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()
