"""Deletes deliveries, signing keys and expired credentials that were kept long enough, in pages.

Source: docs/decisions/0053-retention.md
"""

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Event
from time import monotonic
from typing import Final

import structlog
from sqlalchemy import Engine

from cardledger.ledger.storage.engines import is_unable, message_of
from cardledger.ledger.webhooks import retention, signing_keys
from cardledger.workers.signals.periodic_task import PeriodicTask

EVERY_S: Final = 10.0
_PAGES: Final = 10  # In a run; twice as many in each run after one that was not enough.
_PAGES_LIMIT: Final = 10_000
_AGAIN_S: Final = 3600.0  # Between two looks at old deliveries, of which some were not over.
# So that a long backlog does not take all of the database's time.
_RUN_S: Final = EVERY_S / 2
_CREDENTIALS_S: Final = EVERY_S / 4

_log = structlog.get_logger()


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
        self._pages_of_credentials = _PAGES
        # Up to where deliveries were looked at, and when that began.
        self._after = retention.FIRST
        self._began_at = -math.inf
        self._logged: set[str] = set()  # Errors of the last run behind its first one.
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
        """Delete what is due, within the bounds of a run; the next run goes on.

        What cannot be deleted, as without a right of the schema, keeps nothing else. The task logs
        the first error; a further one is logged here, once however often it is repeated.
        """
        errors: list[Exception] = []
        for part in (self._delete_deliveries, self._delete_keys, self._delete_credentials):
            try:
                part()
            except Exception as error:  # noqa: BLE001 - raised once the others are done
                errors.append(error)
        # Of an outage, the task's own line is enough.
        others = {message_of(error) for error in errors[1:] if not is_unable(error)}
        for message in others - self._logged:
            _log.error("old rows not deleted", error=message)
        self._logged = others
        if errors:
            raise errors[0]
        return False

    def _delete_deliveries(self) -> None:
        """Delete pages of deliveries, from where the last run has ended."""
        now, deadline = monotonic(), monotonic() + _RUN_S
        if now - self._began_at >= _AGAIN_S:
            self._began_at, self._after = now, retention.FIRST
        before = self._clock() - self._kept
        for number in range(self._pages):
            if self._stopping.is_set() or (number and monotonic() > deadline):
                break
            with self._engine.begin() as connection:  # Each page: its locks are short.
                after = retention.delete_old(
                    connection, before=before, after=self._after, page=self._page
                )
            if after is None:
                self._pages = _PAGES
                return
            self._after = after
        self._pages = min(self._pages * 2, _PAGES_LIMIT)

    def _delete_keys(self) -> None:
        with self._engine.begin() as connection:
            signing_keys.delete_ended(connection, at=self._clock())

    def _delete_credentials(self) -> None:
        """Delete pages of credentials; a platform can make more than ten pages in a run's time."""
        deadline = monotonic() + _CREDENTIALS_S
        for number in range(self._pages_of_credentials):
            if self._stopping.is_set() or (number and monotonic() > deadline):
                break
            with self._engine.begin() as connection:
                count = retention.delete_expired_credentials(connection, page=self._page)
            if count < self._page:
                self._pages_of_credentials = _PAGES
                return
        self._pages_of_credentials = min(self._pages_of_credentials * 2, _PAGES_LIMIT)
