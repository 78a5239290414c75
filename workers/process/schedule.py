"""What becomes due by itself: timers, bookings, answers of others, ends of quotes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from psycopg import Connection
from sqlalchemy import Engine as Database

from cardledger.ledger.engine.approved_adjustments import ApprovedAdjustments
from cardledger.ledger.engine.due_settlements import DueSettlements
from cardledger.ledger.engine.timers import Timers
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.payments.approvals import ApprovalAnswers
from cardledger.ledger.quotes.expiry import Expiry
from cardledger.ledger.storage import database_clock
from cardledger.ledger.storage.engines import driver
from cardledger.workers.signals.periodic_task import PeriodicTask

RUNS_EVERY_S: Final = 1.5
"""How often a task runs in any case: one that fails once is not yet stuck (`health.STALE_S`)."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A task, and the condition, in SQL, that it may have something to do.

    To evaluate the condition costs one look at an index. The task also does what is not urgent, and
    is not in the condition.
    """

    is_due: str
    task: PeriodicTask


class Schedule:
    """Looks, by one statement for all tasks, which of them have something to do.

    Each task has a thread of its own, so that one that waits for a lock delays no other.
    """

    def __init__(
        self, database: Database, scheduled: Sequence[Scheduled], *, every_s: float
    ) -> None:
        """Look every `every_s` seconds, over a connection of `database`, which looks up by key."""
        self._database: Final = database.execution_options(isolation_level="AUTOCOMMIT")
        self._scheduled: Final = [each.task for each in scheduled]
        conditions = ", ".join(each.is_due for each in scheduled)
        self._statement: Final = f"SELECT {conditions}".encode()
        self.tasks: Final[Sequence[PeriodicTask]] = (
            PeriodicTask("schedule", self._look, every_s=every_s),
            *self._scheduled,
        )

    def _look(self) -> bool:
        try:
            with self._database.connect() as outer:
                due = driver(outer).execute(self._statement).fetchone()
        except Exception:
            # A table that is locked, or not for this role, keeps back no other task.
            for task in self._scheduled:
                task.wake()
            raise
        assert due is not None, "a SELECT without FROM has a row"
        for task, is_due in zip(self._scheduled, due, strict=True):
            if is_due:
                task.wake()
        return False


class _Source(Protocol):
    @property
    def is_due(self) -> str: ...

    def enqueue_due(self, connection: Connection[Any], now: datetime) -> int: ...


def enqueueing(  # noqa: PLR0913 - each by name
    database: Database,
    key: InboxKey,
    wake: Callable[[], None],
    *,
    rail_connected: bool,
    quotes_kept: timedelta,
    every_s: float,
) -> list[Scheduled]:
    """Return the tasks that put what is due into the inbox, a page at a time over `database`.

    They run every `every_s` seconds in any case, sign with `key`, and `wake` who decides what was
    written. Without a funding rail, no pull is confirmed. Expired quotes are deleted after
    `quotes_kept`.
    """

    def scheduled(name: str, source: _Source) -> Scheduled:
        def work() -> bool:
            with database.begin() as outer:
                connection = driver(outer)
                written = source.enqueue_due(connection, database_clock.read(connection))
            if written:
                wake()
            return False

        return Scheduled(source.is_due, PeriodicTask(name, work, every_s=every_s))

    return [
        scheduled("timers", Timers(key, rail_connected=rail_connected)),
        scheduled("adjustments", ApprovedAdjustments(key)),
        scheduled("settlements", DueSettlements(key)),
        scheduled("approvals", ApprovalAnswers(key)),
        scheduled("quotes", Expiry(kept=quotes_kept)),
    ]
