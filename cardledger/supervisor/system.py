"""The whole system in one process tree: servers, schema, sandbox platform, API, workers."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from cardledger.api import BASE_PATH
from cardledger.api.console import ROOT as CONSOLE
from cardledger.api.console.mode import ConsoleMode
from cardledger.config import secret_files
from cardledger.config.configuration import writable_directory
from cardledger.config.settings import PREFIX, secret_of
from cardledger.config.unsafe import Unsafe
from cardledger.embedded.servers import DatabaseUrl
from cardledger.install import credentials, databases, exposure, key_check, ready_file
from cardledger.install.credentials import Credentials, Sandbox
from cardledger.install.databases import Migrated
from cardledger.install.ready_file import Running
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.schema.roles import Role
from cardledger.supervisor.backing_servers import BackingServers
from cardledger.supervisor.child import Log
from cardledger.supervisor.children import Children
from cardledger.supervisor.listening_socket import ListeningSocket
from cardledger.supervisor.plan import Plan, Step
from cardledger.supervisor.processes import console_mode

_CONSOLE_DATABASE: Final = f"{PREFIX}CONSOLE_DATABASE_URL"  # With the login of the API.


class System:
    """All processes, until `stop`; children and embedded servers that die are restarted."""

    def __init__(self, plan: Plan, *, log: Log, on_step: Callable[[Step], None]) -> None:
        """Set nothing up yet; pass the children's logs to `log`, and every step to `on_step`."""
        self._plan: Final = plan
        self._settings: Final = plan.settings
        self._log: Final = log
        self._on_step: Final = on_step
        self._data_dir: Final = plan.settings.data_dir
        self._stopping: Final = threading.Event()
        self._publishing: Final = threading.Lock()
        self._servers: Final = BackingServers(plan.settings, log=log, on_step=on_step)
        self._children: Final = Children(log=self._log_child, on_change=self._publish)
        self._lock: int | None = None
        self._socket: ListeningSocket | None = None
        self._secret_key = ""
        self._migrated: Migrated | None = None
        self._sandbox: Sandbox | None = None
        self._watcher: threading.Thread | None = None
        self._is_ready = False
        self._published: dict[str, int] = {}
        self._has_console = False

    def start(self) -> Running:
        """Set everything up and return once it serves.

        Raises: CommandError, ServerError; `stop` then removes what was started.
        """
        settings = self._settings
        listens_on = exposure.beyond_loopback(settings.host, settings.port)
        exposure.check(settings, listens_on=listens_on)
        self._has_console = (
            console_mode(settings, is_on_loopback=listens_on is None) != ConsoleMode.OFF
        )
        self._lock = ready_file.claim(writable_directory(self._data_dir))
        for path in self._ready_files():
            path.unlink(missing_ok=True)
        self._socket = ListeningSocket(settings.host, settings.port, any_port=self._plan.any_port)
        kept = credentials.load(self._data_dir)
        self._secret_key = credentials.secret_key(kept, secret_of(settings.secret_key))
        owner = self._servers.start_postgres()
        self._servers.start_redis()
        self._migrate(owner, kept)
        self._start_children()
        self._watcher = threading.Thread(target=self._watch_servers, name="servers", daemon=True)
        self._watcher.start()
        return self.running

    @property
    def running(self) -> Running:
        """Its addresses and credentials."""
        assert self._sandbox is not None, "start() comes first"
        assert self._migrated is not None
        return Running(
            base_url=self._base_url,
            client_id=self._sandbox.access.client_id,
            client_secret=self._sandbox.access.client_secret,
            database_url=self._migrated.app_url,
            finance_url=self._migrated.finance_url,
            redis_url=self._servers.redis_url,
            webhook_public_key=self._sandbox.public_key,
            webhook_secret=self._sandbox.webhook_secret,
            pids=self._pids(),
        )

    @property
    def platform_id(self) -> str:
        """The id of the sandbox platform."""
        assert self._sandbox is not None, "start() comes first"
        return self._sandbox.access.platform_id

    @property
    def owner_url(self) -> DatabaseUrl:
        """The URL of the database, with the login of its owner."""
        return self._servers.owner_url

    @property
    def port(self) -> int:
        """The port of the API."""
        assert self._socket is not None, "start() comes first"
        return self._socket.port

    def console_link(self, page: str = CONSOLE) -> str | None:
        """Return a link that opens `page` of the console once, within a minute; None: it is off."""
        if not self._has_console:
            return None
        assert self._sandbox is not None, "start() comes first"
        assert self._migrated is not None
        assert self._socket is not None
        ticket = credentials.console_ticket(
            self._migrated.app_url,
            KeyRing(credentials.with_others(self._settings, self._secret_key)),
            self._sandbox.access.client_id,
        )
        return f"{self._socket.origin}{page}?ticket={ticket}"

    def stop(self, *, is_urgent: Callable[[], bool] = lambda: False) -> None:
        """Stop everything, callers first and servers last; no accepted event is lost.

        Meanwhile the children are killed as soon as `is_urgent` returns True.
        """
        self._stopping.set()
        with self._publishing:
            for path in self._ready_files() if self._lock is not None else ():
                path.unlink(missing_ok=True)
        # `stop` may be called before the watcher has started.
        if self._watcher is not None and self._watcher.ident is not None:
            self._watcher.join()
        if self._socket is not None:
            self._socket.close()
        self._children.stop(is_urgent=is_urgent)
        self._servers.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _migrate(self, owner: DatabaseUrl, kept: Credentials) -> None:
        began = time.monotonic()
        keys = KeyRing(credentials.with_others(self._settings, self._secret_key))
        key_check.check(owner, keys)  # Before anything is changed in the database of others.
        given = databases.passwords(self._settings)
        self._migrated = databases.prepare(owner, kept, passwords=given)
        self._sandbox = credentials.enter(kept, self._migrated.app_url, keys)
        was, revision = self._migrated.was, self._migrated.revision
        change = "unchanged" if was == revision else f"was {was or 'empty'}"
        names = [databases.role_of(url) for url in self._migrated.logins.values()]
        roles = f"role {names[0]}" if len(set(names)) == 1 else "a role for each process"
        detail = f"{revision} ({change}), {roles}"
        seconds = time.monotonic() - began
        self._on_step(Step(name="Schema", detail=detail, seconds=seconds, cost=self._cost(names)))

    def _cost(self, names: Sequence[str]) -> str | None:
        """Return what is to be known about the database whose processes have the roles `names`."""
        if len(set(names)) == 1:
            return (
                f"all processes share {names[0]}: set CARDLEDGER_API_PASSWORD, _WORKER_PASSWORD and"
                " _WEBHOOKS_PASSWORD, or DATABASE_URL to the owner's login"
            )
        return None

    def _start_children(self) -> None:
        assert self._socket is not None
        workers = self._plan.workers
        self._children.start(
            listen_fd=self._socket.fd,
            workers=workers,
            environment=self._environment,
            stale=self._ready_files(),
            metrics_port=self._settings.metrics_port,
        )
        seconds = self._children.wait_until_ready(self._socket.is_api_ready, self._stopping)
        self._is_ready = True
        self._publish()
        self._on_step(Step(name="API", detail=self._base_url, seconds=seconds))
        threads = self._settings.worker_threads
        plural = "" if workers == 1 else "es"
        detail = f"{workers} process{plural} of {threads} threads: events, cards; 1: webhooks"
        self._on_step(Step(name="Workers", detail=detail, seconds=seconds))

    def _watch_servers(self) -> None:
        """Restart embedded servers; the children reconnect to PostgreSQL by themselves."""
        self._servers.keep_alive(
            self._stopping,
            on_change=self._publish,
            on_move=lambda: self._children.restart(self._environment),
        )

    def _log_child(self, name: str, line: str) -> None:
        """Pass on a line of a child's log; its last line says that it has ended."""
        self._log(name, line)
        if self._published != self._pids():
            self._publish()

    def _environment(self, role: Role) -> dict[str, str]:
        """Return the environment of a child that runs as `role`.

        Secrets are in it, never on a command line, and none of another role.
        """
        assert self._migrated is not None
        passwords = {databases.variable_of(each) for each in Role}
        # What came from a file is in a variable below, or is no business of the children.
        given = {"DATABASE_URL", "REDIS_URL", f"{PREFIX}SECRET_KEY", *passwords}
        removed = passwords | {f"{name}{secret_files.SUFFIX}" for name in given}
        if role is not Role.API:
            removed |= {_CONSOLE_DATABASE, f"{_CONSOLE_DATABASE}{secret_files.SUFFIX}"}
        environment = {name: value for name, value in os.environ.items() if name not in removed}
        return environment | {
            "DATABASE_URL": self._migrated.logins[role],
            "REDIS_URL": self._servers.redis_url,
            f"{PREFIX}SECRET_KEY": self._secret_key,
            f"{PREFIX}DATA_DIR": str(self._data_dir),
            # Receivers under development, and the one of the demo, are on this machine.
            f"{PREFIX}ACCEPT_UNSAFE": f"{self._settings.accept_unsafe},{Unsafe.LOOPBACK_WEBHOOKS}",
        }

    @property
    def _base_url(self) -> str:
        assert self._socket is not None, "start() comes first"
        return f"{self._socket.origin}{BASE_PATH}"

    def _ready_files(self) -> list[Path]:
        files = [self._data_dir / ready_file.READY_FILE]
        return [*files, self._plan.ready_file] if self._plan.ready_file else files

    def _publish(self) -> None:
        """Write the ready files again: a process id has changed."""
        with self._publishing:
            if self._is_ready and not self._stopping.is_set():
                running = self.running
                for path in self._ready_files():
                    ready_file.write_private(path, running.text())
                self._published = dict(running.pids)

    def _pids(self) -> dict[str, int]:
        pids = self._children.pids() | self._servers.pids()
        return {name: pid for name, pid in pids.items() if pid is not None}
