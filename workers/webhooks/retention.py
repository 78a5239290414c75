"""Deletes deliveries, signing keys and expired credentials that were kept long enough, in pages.

Source: docs/decisions/0053-retention.md
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Event
from time import monotonic
from typing import Final

from sqlalchemy import Engine

from cardledger.ledger.webhooks import retention, signing_keys
from cardledger.schema.ids import Id
from cardledger.workers.signals.periodic_task import PeriodicTask

EVERY_S: Final = 10.0
_PAGES: Final = 10  # In a run; twice as many in each run after one that was not enough.
_PAGES_LIMIT: Final = 10_000
_RUN_S: Final = EVERY_S / 2  # So that a long backlog does not take all of the database's time.


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
        """Delete deliveries older than `kept`; not before `start`."""
        self._engine: Final = engine
        self._kept: Final = kept
        self._clock: Final = clock
        self._page: Final = page
        self._pages = _PAGES
        self._stopping: Final = Event()
        self._task: Final = PeriodicTask("retention", self.run, every_s=EVERY_S)

    def start(self) -> None:
        """Begin to delete."""
        self._task.start()
        self._task.wake()

    def stop(self, timeout_s: float) -> None:
        """Let the present page end, for `timeout_s` at most."""
        self._stopping.set()
        self._task.stop(timeout_s)

    def run(self) -> bool:
        """Delete what is due, within the bounds of a run; the next run goes on."""
        is_done = self._delete_deliveries()
        self._pages = _PAGES if is_done else min(self._pages * 2, _PAGES_LIMIT)
        # After them: where it fails, as without the right of schema 0137, they are deleted.
        with self._engine.begin() as connection:
            signing_keys.delete_ended(connection, at=self._clock())
        self._delete_credentials()
        return False

    def _delete_deliveries(self) -> bool:
        """Delete pages of deliveries; return whether none is left."""
        before, deadline = self._clock() - self._kept, monotonic() + _RUN_S
        after: Id | None = retention.FIRST
        for number in range(self._pages):
            if after is None or self._stopping.is_set() or (number and monotonic() > deadline):
                break
            with self._engine.begin() as connection:  # Each page: its locks are short.
                after = retention.delete_old(
                    connection, before=before, after=after, page=self._page
                )
        return after is None

    def _delete_credentials(self) -> None:
        for _ in range(_PAGES):
            if self._stopping.is_set():
                return
            with self._engine.begin() as connection:
                if retention.delete_expired_credentials(connection, page=self._page) < self._page:
                    return
