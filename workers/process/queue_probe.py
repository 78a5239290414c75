"""Whether the queues with messages move, as a worker observes it.

A queue whose row another session has locked is passed over by every batch, and no batch fails. A
canary behind its oldest message tells whether the queue moves (docs/decisions/0032).
"""

from time import monotonic
from typing import Final

from sqlalchemy import Engine

from cardledger.ledger.messaging import canaries, inbox
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.storage.engines import COMMIT_WITHOUT_FLUSH, driver
from cardledger.workers.signals.periodic_task import PeriodicTask

_EVERY_S: Final = 0.5


class QueueProbe:
    """Observes the queues twice a second, over a connection of `database`."""

    def __init__(self, database: Engine, key: InboxKey) -> None:
        """Sign the canaries by `key`; `start` starts the observation."""
        self._database: Final = database
        self._looks: Final = database.execution_options(isolation_level="AUTOCOMMIT")
        self._key: Final = key
        self._watch: Final = canaries.QueueWatch(probes_empty=False)
        self._stuck: dict[canaries.Queue, float] = {}  # As of the last observation.
        self._task: Final = PeriodicTask("queue probe", self._observe, every_s=_EVERY_S)

    def start(self) -> None:
        """Start to observe."""
        self._task.start()

    def stop(self, limit_s: float) -> None:
        """Observe no more."""
        self._task.stop(limit_s)

    def count_stuck(self) -> int:
        """Return how many queues do not move."""
        return len(self._stuck)

    def check(self) -> str | None:
        """Return which queues do not move, and what to do; None when all do."""
        if not self._stuck:
            return None
        stuck = canaries.stuck_in_words(self._stuck)
        return f"{stuck}; see which session locks their rows: cardledger doctor"

    def _observe(self) -> bool:
        with self._looks.connect() as outer:
            observed = canaries.observe(driver(outer), self._watch.outstanding)
        now = monotonic()
        self._watch.observe(observed, now)
        self._stuck = self._watch.stuck(now)
        sent = [canaries.canary(queue, observed.at) for queue in self._watch.due(now)]
        if sent:
            with self._database.begin() as outer:
                connection = driver(outer)
                inbox.accept(connection, sent, self._key)
                connection.execute(COMMIT_WITHOUT_FLUSH)
        self._watch.sent(sent, now)
        return False
