"""One batch, one commit: the only place where business facts are committed.

A queue (lane and shard) is drained by one worker at a time, in order of arrival. A batch locks
the accounts of its cardholders in the order of their ids, loads what it needs with one statement
a table, decides, and writes everything in one database transaction (docs/decisions/0004).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Event
from typing import Any, Final
from uuid import UUID

import psycopg
import structlog
from sqlalchemy import Engine as Database
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from ledger import inbox, store
from ledger.batch import Batch, Decided, Loaded, closed_cards, purchases_of, rejection_of
from ledger.database import driver
from ledger.inbox import Lane, Message
from ledger.store import Key
from schema.wire.outcomes import OutcomeType, RejectionReason

Clock = Callable[[], datetime]

_AWAY: Final = (psycopg.OperationalError, DBAPIError, PoolTimeoutError)

_ATTEMPTS: Final = 2  # A message that fails alone may have lost a race; twice is a fault of ours.

_log = structlog.get_logger()


class UnavailableError(Exception):
    """PostgreSQL is away or gave up; nothing was written. Try again later."""


class _DeadlinePassedError(Exception):
    """An approval would be committed after its deadline; decide again."""


class Engine:
    """Drains queues of the inbox."""

    def __init__(
        self, database: Database, *, clock: Clock, batch_size: int, sandbox_delay: timedelta | None
    ) -> None:
        """Work on `database`, deciding at most `batch_size` messages a commit.

        `sandbox_delay` is how long the sandbox's slow answers take; None outside the sandbox.
        """
        self._database: Final = database
        self._clock: Final = clock
        self._sandbox_delay: Final = sandbox_delay
        self._batch_size: Final = batch_size
        self._system_accounts: dict[tuple[UUID, str, str], UUID] = {}
        self._stopping: Final = Event()

    def drain(self, lane: Lane, shard: int, committed: Callable[[list[Decided]], None]) -> int:
        """Decide all that waits in a queue; call `committed` after every commit.

        Returns the number of messages decided.
        Raises: UnavailableError when PostgreSQL is; what was committed stays committed.
        """
        total = 0
        while True:
            decided = self._run(lane, shard)
            if decided:
                committed(decided)
            total += len(decided)
            if len(decided) < self._batch_size or self._stopping.is_set():
                return total

    def stop(self) -> None:
        """Let drains end after the batch they are at; what waits stays in the inbox."""
        self._stopping.set()

    def waiting(self) -> list[tuple[Lane, int]]:
        """Return the queues that have messages.

        Raises: UnavailableError when PostgreSQL is.
        """
        with self._transaction() as connection:
            return store.waiting(connection)

    def _run(self, lane: Lane, shard: int) -> list[Decided]:
        try:
            return self._commit_batch(lane, shard, self._batch_size)
        except UnavailableError:
            raise
        except Exception:  # noqa: BLE001 - whichever message it was, its neighbours go on
            _log.exception("batch failed: its messages are tried one by one", shard=shard)
            return self._run_one_by_one(lane, shard)

    def _run_one_by_one(self, lane: Lane, shard: int) -> list[Decided]:
        """Decide a batch's worth of messages in commits of their own.

        A message that fails even alone is ours to mend: it is set aside with its body.
        """
        decided: list[Decided] = []
        for _ in range(self._batch_size):
            one = self._run_one(lane, shard)
            if not one:
                break
            decided += one
        return decided

    def _run_one(self, lane: Lane, shard: int) -> list[Decided]:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._commit_batch(lane, shard, 1)
            except UnavailableError:
                raise
            except Exception:  # noqa: BLE001 - what we got wrong must not stop the queue
                _log.exception("message failed alone", shard=shard, attempt=attempt)
        return self._set_aside(lane, shard)

    def _commit_batch(self, lane: Lane, shard: int, limit: int) -> list[Decided]:
        while True:
            try:
                with self._transaction() as connection:
                    return self._decide(connection, lane, shard, limit)
            except _DeadlinePassedError:
                continue  # The clock has moved on: now they are refused.

    def _decide(
        self, connection: psycopg.Connection[Any], lane: Lane, shard: int, limit: int
    ) -> list[Decided]:
        store.lock_shard(connection, lane, shard)
        messages = store.claim(connection, lane, shard, limit)
        if not messages:
            return []
        loaded = self._load(connection, messages)
        # After the locks: what waited for another batch was not recorded before it.
        now = self._clock()
        batch = Batch(loaded, now=now, sandbox_delay=self._sandbox_delay)
        decided = batch.decide(messages)
        self._write(connection, batch, now)
        store.remove(connection, lane, shard, [message.id for message in messages])
        if batch.first_deadline and self._clock() > batch.first_deadline:
            raise _DeadlinePassedError
        return decided

    def _load(self, connection: psycopg.Connection[Any], messages: Iterable[Message]) -> Loaded:
        messages = list(messages)
        purchases = purchases_of(messages)
        # The locks come first: what is read after them cannot change any more.
        accounts = store.lock_accounts(connection, {message.customer_id for message in messages})
        keys = {
            Key(message.reference, message.source, message.platform_id, message.customer_id)
            for message in messages
        }
        roll_ups = store.roll_ups(connection, purchases)
        closed = closed_cards(messages)
        if closed:
            roll_ups += store.open_on_cards(connection, closed)
        return Loaded(
            outcomes=store.outcomes(connection, keys),
            cards=store.cards(connection, {purchase.card_id for purchase in purchases}),
            accounts=accounts,
            roll_ups=roll_ups,
            debts=store.debts(connection, accounts),
            parked=store.parked(connection, purchases),
            system_accounts=self._chart(connection, {a.platform_id for a in accounts.values()}),
        )

    def _chart(
        self, connection: psycopg.Connection[Any], platform_ids: set[UUID]
    ) -> dict[tuple[UUID, str, str], UUID]:
        """Return the system accounts, which never change once they are there."""
        missing = platform_ids - {platform_id for platform_id, _, _ in self._system_accounts}
        if missing:
            found = store.system_accounts(connection, missing)
            self._system_accounts = {**self._system_accounts, **found}
        return self._system_accounts

    def _write(self, connection: psycopg.Connection[Any], batch: Batch, now: datetime) -> None:
        writes = batch.writes
        changed = writes.roll_ups
        store.append_events(connection, writes.events)
        store.append_entries(connection, writes.entries)
        store.append_deposits(connection, writes.deposits)
        store.append_outcomes(connection, writes.outcomes.values(), now)
        store.append_rejections(connection, writes.rejections)
        store.append_outbox(connection, writes.outbox)
        inbox.accept_in_thread(connection, writes.follow_ups)
        store.park(connection, writes.parked)
        store.unpark(connection, writes.unparked)
        store.await_confirmations(connection, writes.pending_pulls)
        store.insert_roll_ups(
            connection, [r for purchase, r in changed.items() if purchase not in batch.existing]
        )
        store.update_roll_ups(
            connection, [r for purchase, r in changed.items() if purchase in batch.existing]
        )
        store.update_accounts(connection, list(writes.accounts.values()))

    def _set_aside(self, lane: Lane, shard: int) -> list[Decided]:
        detail = "it failed inside the ledger and was set aside; send it again once that is mended"
        with self._transaction() as connection:
            store.lock_shard(connection, lane, shard)
            messages = store.claim(connection, lane, shard, 1)
            now = self._clock()
            store.append_rejections(
                connection,
                [
                    rejection_of(message, RejectionReason.INTERNAL_ERROR, detail, now)
                    for message in messages
                ],
            )
            store.remove(connection, lane, shard, [message.id for message in messages])
        return [
            Decided(
                message,
                OutcomeType.REJECTED,
                reason=RejectionReason.INTERNAL_ERROR,
                detail=detail,
            )
            for message in messages
        ]

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield psycopg's connection in a database transaction of its own.

        Raises: UnavailableError when PostgreSQL is away or gave up; nothing was written, or, when
        only the answer to the commit was lost, all of it: the messages tell.
        """
        try:
            with self._database.begin() as connection:
                yield driver(connection)
        except psycopg.errors.ProgramLimitExceeded:
            raise  # A value too long for its index is the message's fault and stays so.
        except _AWAY as error:
            raise UnavailableError from error
