"""Deletes deliveries of webhooks and signing keys that were kept long enough, a little at a time.

Source: docs/decisions/0053-retention.md
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Engine

from cardledger.ledger.webhooks import retention, signing_keys
from cardledger.workers.signals.periodic_task import PeriodicTask

EVERY_S: Final = 10.0
_PAGES: Final = 10  # In a run, so that a long backlog does not take the database's time.


class Retention:
    """Deletes old deliveries and ended signing keys over `engine`, by the time of `clock`."""

    def __init__(
        self,
        engine: Engine,
        kept: timedelta,
        *,
        clock: Callable[[], datetime],
        page: int = retention.PAGE,
    ) -> None:
        """Delete deliveries older than `kept`, ten pages at most a run; not before `start`."""
        self._engine: Final = engine
        self._kept: Final = kept
        self._clock: Final = clock
        self._page: Final = page
        self._task: Final = PeriodicTask("retention", self.run, every_s=EVERY_S)

    def start(self) -> None:
        """Begin to delete."""
        self._task.start()
        self._task.wake()

    def stop(self, timeout_s: float) -> None:
        """Let the present run end, for `timeout_s` at most."""
        self._task.stop(timeout_s)

    def run(self) -> bool:
        """Delete what is due, within the bounds of a run; the next run goes on."""
        before = self._clock() - self._kept
        for _ in range(_PAGES):
            with self._engine.begin() as connection:  # Each page: its locks are short.
                if retention.delete_old(connection, before=before, page=self._page) < self._page:
                    break
        # Last: where it fails, as without the right of schema 0137, deliveries are deleted.
        with self._engine.begin() as connection:
            signing_keys.delete_ended(connection, at=self._clock())
        return False
