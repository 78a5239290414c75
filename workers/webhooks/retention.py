"""Deletes deliveries, signing keys and expired credentials that were kept long enough, in pages.

Source: docs/decisions/0053-retention.md
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from sqlalchemy import Connection, Engine

from cardledger.ledger.webhooks import retention, signing_keys
from cardledger.workers.signals.periodic_task import PeriodicTask

EVERY_S: Final = 10.0
_PAGES: Final = 10  # In a run, so that a long backlog does not take the database's time.


class Retention:
    """Deletes old deliveries, ended signing keys and expired credentials over `engine`."""

    def __init__(
        self,
        engine: Engine,
        kept: timedelta,
        *,
        clock: Callable[[], datetime],
        page: int = retention.PAGE,
    ) -> None:
        """Delete deliveries older than `kept` by `clock`, not before `start`.

        Of each kind ten pages at most a run.
        """
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
        self._in_pages(partial(retention.delete_old, before=before, page=self._page))
        # Last: where it fails, as without the right of schema 0137, deliveries are deleted.
        with self._engine.begin() as connection:
            signing_keys.delete_ended(connection, at=self._clock())
        self._in_pages(partial(retention.delete_expired_credentials, page=self._page))
        return False

    def _in_pages(self, delete: Callable[[Connection], int]) -> None:
        for _ in range(_PAGES):
            with self._engine.begin() as connection:  # Each page: its locks are short.
                if delete(connection) < self._page:
                    return
