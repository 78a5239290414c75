"""A worker reports its health twice a second: how long each of its parts has tried in vain."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from cardledger.workers.process import health_file
from cardledger.workers.process.health_file import Health
from cardledger.workers.signals.outage_log import REDIS
from cardledger.workers.signals.periodic_task import PeriodicTask
from cardledger.workers.signals.roles import WorkerRole


def role_name(role: WorkerRole | None) -> str:
    """Return the name of `role` in health files; None is every role in one process."""
    return "all" if role is None else role.value


STALE_S: Final = 3.5
"""A part that has tried for longer, without success, is stuck."""

_EVERY_S: Final = 0.5
_STOP_S: Final = 2.0


Check = Callable[[], str | None]
"""Returns a problem with what to do, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What a worker checks."""

    of_worker: Sequence[Check] = ()
    of_installation: Sequence[Check] = ()  # What they find, a restart of the worker does not end.


class HealthReport:
    """Writes the health file of this process; one of its components."""

    def __init__(self, directory: Path, role: str, checks: Sequence[Checks]) -> None:
        """Write to `directory` the problems that `checks`, of each part of the worker, return."""
        self._directory: Final = directory
        self._role: Final = role
        self._checks: Final = checks
        self._task: Final = PeriodicTask("health", self._write, every_s=_EVERY_S)

    def start(self) -> None:
        """Start reporting."""
        self._task.start()
        self._task.wake()

    def stop(self, limit_s: float = _STOP_S) -> None:
        """End the report: a check then finds no worker here."""
        self._task.stop(min(limit_s, _STOP_S))
        health_file.remove(self._directory, self._role, os.getpid())

    def _write(self) -> bool:
        health_file.write(
            self._directory,
            Health(
                role=self._role,
                pid=os.getpid(),
                written_at=monotonic(),
                problems=_problems(check for each in self._checks for check in each.of_worker),
                installation_problems=_problems(
                    check for each in self._checks for check in each.of_installation
                ),
                redis="does not answer" if REDIS.is_out else "answers",
            ),
        )
        return False


def _problems(checks: Iterable[Check]) -> list[str]:
    return [problem for check in checks if (problem := check()) is not None]


def recent(task: PeriodicTask) -> Check:
    """Return the check that `task`, which uses PostgreSQL, succeeds when it runs."""

    def check() -> str | None:
        if not task.is_running:
            return f"{task.name} has ended; restart the worker"
        since = task.trying_since
        tried_s = 0.0 if since is None else monotonic() - since
        if tried_s <= STALE_S:
            return None
        return f"{task.name} has not succeeded for {tried_s:.0f} s; check PostgreSQL and the log"

    return check
