"""Decides messages inside a database transaction of the caller: reads, decides, and writes."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.engine import reads, writes
from cardledger.ledger.engine.decisions.batch import Batch
from cardledger.ledger.engine.failures import (
    DeadlinePassedError,
    is_canary,
    open_days,
    repeated,
)
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.engine.snapshots import SnapshotReader
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.ports import FundingRail
from cardledger.ledger.storage import database_clock
from cardledger.ledger.storage.engines import COMMIT_WITHOUT_FLUSH
from cardledger.ledger.storage.ids import ids_from
from cardledger.schema.ids import Id

Clock = Callable[[], datetime]


class Decider:
    """Decides by PostgreSQL's clock, or by another one in tests; for several threads."""

    def __init__(self, key: InboxKey, rail: FundingRail | None, clock: Clock | None) -> None:
        """Decide what was accepted with `key`; `rail` is the connected funding rail, if any."""
        self._key: Final = key
        self._rail: Final = rail
        self._clock: Final = clock
        self._snapshots: Final = SnapshotReader(key)

    def now(self, connection: Connection[Any]) -> datetime:
        """Return the time by which is decided."""
        return self._clock() if self._clock else database_clock.read(connection)

    def decide(self, connection: Connection[Any], messages: Sequence[Message]) -> list[Decided]:
        """Decide `messages` and write what follows; nothing is committed.

        Raises: DeadlinePassedError when an approval would come too late; StaleSnapshotError.
        """
        if not messages:
            return []
        snapshot, reading = self._snapshots.read(connection, messages)
        now = self._clock() if self._clock else reading.at
        # By the time that was read behind the locks: in the order of commits about a resource,
        # whatever the clocks of the processes that decide.
        batch = Batch(snapshot, now=now, rail=self._rail, webhook_id=ids_from(reading.at))
        decided = batch.decide(messages)
        if batch.writes.suspended:
            batch.leave_out(reads.resolved_by_people(connection, batch.writes.suspended))
        with open_days():
            writes.write(connection, batch.writes, now, self._key, decided=messages)
        if all(map(is_canary, messages)):
            connection.execute(COMMIT_WITHOUT_FLUSH)
        if batch.deadlines:
            written_at = self._clock() if self._clock else reading.now()
            if written_at > min(by for by, _ in batch.deadlines):
                # Another attempt takes as long as this one.
                late = written_at + (written_at - now)
                raise DeadlinePassedError({key for by, key in batch.deadlines if by < late})
        return decided

    def decide_inside(
        self, connection: Connection[Any], messages: Sequence[Message]
    ) -> list[Decided]:
        """Do as `decide` in a savepoint, as often as a race is lost.

        A failure leaves the database transaction usable.
        """

        def decide() -> list[Decided]:
            with connection.transaction():
                return self.decide(connection, messages)

        return repeated(decide)


def ids_before(messages: Sequence[Message], late: Collection[Id]) -> set[Id]:
    """Return of each cardholder the messages before the first that is `late`: order is kept."""
    ended: set[Id] = set()
    kept: set[Id] = set()
    for message in messages:
        if message.id in late:
            ended.add(message.customer_id)
        if message.customer_id not in ended:
            kept.add(message.id)
    return kept
