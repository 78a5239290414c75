"""What becomes due by itself: timers, bookings, answers about payments, ends of quotes."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol

from psycopg import Connection
from sqlalchemy import Engine as Database

from cardledger.ledger.engine.approved_adjustments import ApprovedAdjustments
from cardledger.ledger.engine.due_settlements import DueSettlements
from cardledger.ledger.engine.timers import Timers
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.payments.approvals import ApprovalAnswers
from cardledger.ledger.quotes import expiry
from cardledger.ledger.storage import database_clock
from cardledger.ledger.storage.engines import driver
from cardledger.workers.signals.periodic_task import PeriodicTask

_PROMPT_S: Final = 0.5  # A person waits for the adjustment that was approved; a payer as well.


class _Source(Protocol):
    def enqueue_due(self, connection: Connection[Any], now: datetime) -> int: ...


class Schedule:
    """Puts what is due into the inbox, in threads of its own."""

    def __init__(  # noqa: PLR0913 - each by name
        self,
        database: Database,
        key: InboxKey,
        wake: Callable[[], None],
        *,
        rail_connected: bool,
        every_s: float,
        quotes_kept: timedelta,
    ) -> None:
        """Look every `every_s` seconds, sign with `key`, and `wake` who decides what was written.

        Without a funding rail, no pull is confirmed. Expired quotes are deleted after
        `quotes_kept`.
        """
        self._database: Final = database
        self._wake: Final = wake
        timers = Timers(key, rail_connected=rail_connected)
        adjustments = ApprovedAdjustments(key)
        settlements = DueSettlements(key)
        answers = ApprovalAnswers(key)
        quotes = expiry.Expiry(kept=quotes_kept)
        self.tasks: Final[Sequence[PeriodicTask]] = (
            PeriodicTask("timers", partial(self._enqueue, timers), every_s=every_s),
            PeriodicTask(
                "adjustments",
                partial(self._enqueue, adjustments),
                every_s=min(every_s, _PROMPT_S),
            ),
            PeriodicTask(
                "settlements",
                partial(self._enqueue, settlements),
                every_s=min(every_s, _PROMPT_S),
            ),
            PeriodicTask(
                "approvals",
                partial(self._enqueue, answers),
                every_s=min(every_s, _PROMPT_S),
            ),
            PeriodicTask("quotes", partial(self._enqueue, quotes), every_s=every_s),
        )

    def _enqueue(self, source: _Source) -> bool:
        with self._database.begin() as outer:
            connection = driver(outer)
            written = source.enqueue_due(connection, database_clock.read(connection))
        if written:
            self._wake()
        return False
