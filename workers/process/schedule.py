"""What becomes due by itself: timers, bookings, answers of others, ends of quotes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from psycopg import Connection
from psycopg.errors import LockNotAvailable
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

RUNS_EVERY_S: Final = 2.0
"""How often a task runs in any case."""

_LOOKS_EVERY_S: Final = 0.5  # A person waits for an adjustment that was approved, a payer as well.


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A task, and the condition, in SQL, that it may have something to do.

    The condition is evaluated twice a second, by looks at indexes. What is not urgent is not in it.
    """

    is_due: str
    task: PeriodicTask


class Schedule:
    """Asks, by one statement, which tasks have something to do, and wakes these.

    Each task has a thread of its own: one that waits for a lock does not hold up the others.
    """

    def __init__(
        self, database: Database, scheduled: Sequence[Scheduled], *, every_s: float
    ) -> None:
        """Ask every `every_s` seconds, 0.5 at most, over a connection of `database`."""
        self._database: Final = database.execution_options(isolation_level="AUTOCOMMIT")
        self._scheduled: Final = [each.task for each in scheduled]
        conditions = ", ".join(each.is_due for each in scheduled)
        self._statement: Final = f"SELECT {conditions}".encode()
        look = PeriodicTask("schedule", self._look, every_s=min(every_s, _LOOKS_EVERY_S))
        self.tasks: Final[Sequence[PeriodicTask]] = (look, *self._scheduled)

    def _look(self) -> bool:
        try:
            with self._database.connect() as outer:
                due = driver(outer).execute(self._statement).fetchone()
        except LockNotAvailable:
            self._wake(self._scheduled)  # A locked table keeps back its own task only.
            return False
        except Exception:
            self._wake(self._scheduled)  # One that can do without what failed does its work.
            raise
        assert due is not None, "a SELECT without FROM has a row"
        pairs = zip(self._scheduled, due, strict=True)
        self._wake(task for task, is_due in pairs if is_due)
        return False

    def _wake(self, tasks: Iterable[PeriodicTask]) -> None:
        for task in tasks:
            if task.is_resting:  # Another one would run again at once, without a rest.
                task.wake()


class _Source(Protocol):
    @property
    def is_due(self) -> str: ...

    def enqueue_due(self, connection: Connection[Any], now: datetime) -> int: ...


def enqueueing(
    database: Database,
    key: InboxKey,
    wake: Callable[[], None],
    *,
    rail_connected: bool,
    quotes_kept: timedelta,
) -> list[Scheduled]:
    """Return the tasks that put what is due into the inbox, a page at a time over `database`.

    They sign with `key`, and `wake` who decides what was written. Without a funding rail, no pull
    is confirmed. Expired quotes are deleted after `quotes_kept`.
    """

    def scheduled(name: str, source: _Source) -> Scheduled:
        def work() -> bool:
            with database.begin() as outer:
                connection = driver(outer)
                written = source.enqueue_due(connection, database_clock.read(connection))
            if written:
                wake()
            return False

        return Scheduled(source.is_due, PeriodicTask(name, work, every_s=RUNS_EVERY_S))

    return [
        scheduled("timers", Timers(key, rail_connected=rail_connected)),
        scheduled("adjustments", ApprovedAdjustments(key)),
        scheduled("settlements", DueSettlements(key)),
        scheduled("approvals", ApprovalAnswers(key)),
        scheduled("quotes", Expiry(kept=quotes_kept)),
    ]
