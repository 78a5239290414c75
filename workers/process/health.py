"""A worker reports its health once a second: how long ago each of its parts last succeeded."""

import os
from collections.abc import Callable, Sequence
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


STALE_S: Final = 4.0
"""A part that runs twice a second and last succeeded longer ago is stuck."""

_EVERY_S: Final = 1.0
_STOP_S: Final = 2.0


Check = Callable[[], str | None]
"""Returns a problem with what to do, or None."""


class HealthReport:
    """Writes the health file of this process; one of its components."""

    def __init__(self, directory: Path, role: str, checks: Sequence[Check]) -> None:
        """Write to `directory` the problems that `checks` return."""
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
        problems = [problem for check in self._checks if (problem := check()) is not None]
        health_file.write(
            self._directory,
            Health(
                role=self._role,
                pid=os.getpid(),
                written_at=monotonic(),
                problems=problems,
                redis="does not answer" if REDIS.is_out else "answers",
            ),
        )
        return False


def recent(task: PeriodicTask) -> Check:
    """Return the check that `task`, which uses PostgreSQL twice a second, succeeds."""

    def check() -> str | None:
        age = monotonic() - task.succeeded_at
        if age <= STALE_S:
            return None
        return f"{task.name} has not succeeded for {age:.0f} s; check PostgreSQL and the log"

    return check
