"""The child processes of a system: the API, and workers."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from cardledger.config.errors import CommandError
from cardledger.schema.roles import Role
from cardledger.supervisor.child import Log, Supervised
from cardledger.supervisor.silence import LOOK_EVERY_S

# A child that ends is noticed at once; this is for machines on which starting takes long.
_READY_TIMEOUT_S: Final = 180.0
_START_ATTEMPTS: Final = 3  # A child that ends so often during the start has a permanent problem.
_POLL_S: Final = 0.02
_URGENT_POLL_S: Final = 0.05
_API_STOP_S: Final = 19.0  # Above `processes.API_END_S`.
_WORKER_STOP_S: Final = 30.0

_API: Final = "api"
_WEBHOOKS: Final = "webhooks"
_ROLES: Final = {_API: Role.API, _WEBHOOKS: Role.WEBHOOKS}

Environment = Callable[[Role], Mapping[str, str]]
"""The environment of a child that runs as a role of the database."""


class Children:
    """Child processes, restarted when they die or freeze; none before `start`."""

    def __init__(self, *, log: Log, on_change: Callable[[], None]) -> None:
        """Pass logs to `log`; call `on_change` at every new, ready or ended process."""
        self._log: Final = log
        self._on_change: Final = on_change
        self._children: Sequence[Supervised] = ()
        self._stopping: Final = threading.Event()

    def start(
        self,
        *,
        listen_fd: int,
        workers: int,
        environment: Environment,
        stale: Sequence[Path],
        metrics_port: int | None = None,
    ) -> None:
        """Start the API on `listen_fd`, and the workers; return at once.

        The workers serve their metrics on the ports from `metrics_port` on, if it is given.
        """
        ports = count(metrics_port or 0)
        stale_options = [part for path in stale for part in ("--stale", str(path))]

        def child(name: str, *arguments: str, pass_fds: Sequence[int] = ()) -> Supervised:
            return Supervised(
                name,
                [*arguments, "--supervised", name, *stale_options],
                environment=environment(_role_of(name)),
                log=self._log,
                on_change=self._on_change,
                pass_fds=pass_fds,
            )

        def worker(name: str, *arguments: str) -> Supervised:
            metrics = ["--metrics-port", str(next(ports))] if metrics_port else []
            return child(name, "worker", *arguments, *metrics)

        self._children = (
            child(_API, "api", "--listen-fd", str(listen_fd), pass_fds=[listen_fd]),
            *(worker(f"worker-{number}", "--only", "events") for number in range(1, workers + 1)),
            worker(_WEBHOOKS, "--only", "webhooks"),
        )
        for started in self._children:
            started.start()
        threading.Thread(target=self._kill_silent, name="heartbeats", daemon=True).start()

    def wait_until_ready(
        self, is_api_ready: Callable[[], bool], stopping: threading.Event
    ) -> float:
        """Return after how many seconds the API and a worker were ready.

        Raises: CommandError when they do not start, or `stopping` is set.
        """
        began = time.monotonic()
        # The worker that sends webhooks is not waited for: deliveries wait for it.
        api, *workers, _webhooks = self._children
        while not (api.is_ready and is_api_ready() and any(worker.is_ready for worker in workers)):
            for child in self._children:
                if child.deaths >= _START_ATTEMPTS:
                    raise CommandError(
                        f"{child.name} does not start; its log ends with:\n{child.last_log_lines}"
                    )
            if time.monotonic() - began > _READY_TIMEOUT_S:
                raise CommandError(
                    f"not ready after {_READY_TIMEOUT_S:g} s; the log of the API ends with:\n"
                    f"{api.last_log_lines}"
                )
            if stopping.wait(_POLL_S):
                raise CommandError("stopped before it was ready")
        return time.monotonic() - began

    def restart(self, environment: Environment) -> None:
        """Restart every child with another environment."""
        for child in self._children:
            child.restart(environment(_role_of(child.name)))

    def pids(self) -> dict[str, int | None]:
        """Return the process ids by name."""
        return {child.name: child.pid for child in self._children}

    def stop(self, *, is_urgent: Callable[[], bool]) -> None:
        """Stop the API, which calls the workers, then the workers; kill all once `is_urgent`."""
        self._stopping.set()
        threading.Thread(target=self._kill_when, args=(is_urgent,), daemon=True).start()
        for child in self._children:
            if child.name == _API:
                child.stop(_API_STOP_S)
        stopping = [
            threading.Thread(target=child.stop, args=(_WORKER_STOP_S,))
            for child in self._children
            if child.name != _API
        ]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()

    def _kill_silent(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_S):
            for child in self._children:
                child.kill_if_silent()

    def _kill_when(self, is_urgent: Callable[[], bool]) -> None:
        while any(child.pid is not None for child in self._children):
            if is_urgent():
                for child in self._children:
                    child.kill()
                return
            time.sleep(_URGENT_POLL_S)


def _role_of(name: str) -> Role:
    """Return the role of the child `name`; workers have numbers."""
    return _ROLES.get(name, Role.WORKER)
