"""PostgreSQL and Redis: given by the user, or started here and restarted when they die."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from cardledger.config.settings import Settings, secret_of
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
from cardledger.install import databases
from cardledger.supervisor.child import Log
from cardledger.supervisor.plan import Step

_CHECK_INTERVAL_S: Final = 0.5


class BackingServers:
    """The servers that the children use."""

    def __init__(self, settings: Settings, *, log: Log, on_step: Callable[[Step], None]) -> None:
        self._settings: Final = settings
        self._log: Final = log
        self._on_step: Final = on_step
        self._postgres: GivenPostgres | EmbeddedPostgres | None = None
        self._redis: GivenRedis | OwnRedis | None = None

    @property
    def owner_url(self) -> DatabaseUrl:
        """The URL of the database, with the login of its owner."""
        assert self._postgres is not None, "start_postgres() comes first"
        if isinstance(self._postgres, EmbeddedPostgres):
            return databases.create(self._postgres.url, schema=self._settings.database_schema)
        return self._postgres.url

    @property
    def redis_url(self) -> str:
        """The URL of Redis."""
        assert self._redis is not None, "start_redis() comes first"
        return self._redis.url

    def pids(self) -> dict[str, int | None]:
        """Return the process ids of the servers that were started here."""
        pids: dict[str, int | None] = {}
        if isinstance(self._postgres, EmbeddedPostgres):
            pids["postgres"] = self._postgres.pid
        if isinstance(self._redis, OwnRedis):
            pids["redis"] = self._redis.pid
        return pids

    def start_postgres(self) -> DatabaseUrl:
        """Find or start PostgreSQL; return `owner_url`.

        Raises: ServerError.
        """
        began = time.monotonic()
        self._postgres = find_postgres(
            secret_of(self._settings.database_url), self._settings.data_dir
        )
        self._postgres.start()
        owner = self.owner_url
        is_embedded = isinstance(self._postgres, EmbeddedPostgres)
        self._on_step(
            Step(
                name="PostgreSQL",
                detail=self._postgres.origin,
                seconds=time.monotonic() - began,
                cost="one machine, no replica, no backup" if is_embedded else None,
            )
        )
        return owner

    def start_redis(self) -> None:
        """Find or start Redis.

        Raises: ServerError.
        """
        began = time.monotonic()
        self._redis = find_redis(secret_of(self._settings.redis_url), self._settings.data_dir)
        self._redis.start()
        self._on_step(
            Step(name="Redis", detail=self._redis.origin, seconds=time.monotonic() - began)
        )

    def keep_alive(
        self,
        stopping: threading.Event,
        *,
        on_change: Callable[[], None],
        on_move: Callable[[], None],
    ) -> None:
        """Restart dead servers until `stopping` is set; call this in a thread.

        `on_change` is called when a process id changes, `on_move` when a URL does.
        """
        while not stopping.wait(_CHECK_INTERVAL_S):
            with suppress(ServerError):
                self._revive(self._postgres, on_change, on_move)
                self._revive(self._redis, on_change, on_move)

    def stop(self) -> None:
        """Stop the servers that were started here."""
        for server in (self._redis, self._postgres):
            if server is not None:
                server.stop()

    def _revive(
        self,
        server: GivenPostgres | EmbeddedPostgres | GivenRedis | OwnRedis | None,
        on_change: Callable[[], None],
        on_move: Callable[[], None],
    ) -> None:
        if not isinstance(server, EmbeddedPostgres | OwnRedis) or _is_running(server):
            return
        on_change()  # Without the process id, for as long as the start takes.
        old_url = server.url
        server.start()
        if _is_running(server):  # Else another process shares it, and it never died.
            self._log("up", f"{server.origin} ended and was restarted")
            on_change()
        if server.url != old_url:
            on_move()


def _is_running(server: EmbeddedPostgres | OwnRedis) -> bool:
    return server.pid is not None
