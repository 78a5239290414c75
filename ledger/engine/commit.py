"""One batch, one commit: the only place where business facts are committed.

A queue (lane and shard) is drained by one worker at a time, in order of arrival. A batch locks
the accounts of its cardholders in the order of their ids, loads what it needs with one statement
a table, decides, and writes everything in one database transaction (docs/decisions/0004).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Event
from typing import Any, Final

import psycopg
import structlog
from sqlalchemy import Engine as Database
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from cardledger.ledger.engine import reads
from cardledger.ledger.engine import writes as recording
from cardledger.ledger.engine.change_set import BatchSnapshot, PendingWrites
from cardledger.ledger.engine.decisions import Batch, Decided
from cardledger.ledger.engine.parsing import (
    closed_cards,
    key_of,
    purchases_of,
    receivers_of,
    rejection_of,
    transfers_of,
)
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.storage.engines import driver
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason

Clock = Callable[[], datetime]

_Batched = tuple[list[Decided], Sequence[int]]  # And the queues that may have more.

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
        self._system_accounts: dict[tuple[Id, str, str], Id] = {}
        self._stopping: Final = Event()

    def drain(
        self, lane: Lane, shards: Sequence[int], committed: Callable[[list[Decided]], None]
    ) -> int:
        """Decide all that waits in queues; call `committed` after every commit.

        Returns the number of messages decided.
        Raises: UnavailableError when PostgreSQL is; what was committed stays committed.
        """
        counted: list[int] = []

        def count(decided: list[Decided]) -> None:
            committed(decided)
            counted.append(len(decided))

        while shards:
            shards = self.step(lane, shards, count)
        return sum(counted)

    def step(
        self, lane: Lane, shards: Sequence[int], committed: Callable[[list[Decided]], None]
    ) -> Sequence[int]:
        """Decide one batch of what waits in queues; returns those that may have more.

        Messages of different queues share a batch: what waits in many is decided with one commit.
        Raises: as `drain`.
        """
        if self._stopping.is_set():
            return []
        decided, unfinished = self._run(lane, shards)
        if decided:
            committed(decided)
        return unfinished

    def stop(self) -> None:
        """Let drains end after the batch they are at; what waits stays in the inbox."""
        self._stopping.set()

    def waiting(self) -> list[tuple[Lane, int]]:
        """Return the queues that have messages.

        Raises: UnavailableError when PostgreSQL is.
        """
        with self._transaction() as connection:
            return reads.waiting(connection)

    def _run(self, lane: Lane, shards: Sequence[int]) -> _Batched:
        try:
            return self._commit_batch(lane, shards, self._batch_size)
        except UnavailableError:
            raise
        except Exception:  # noqa: BLE001 - whichever message it was, its neighbours go on
            _log.exception("batch failed: its messages are tried one by one", shards=shards)
            return self._run_one_by_one(lane, shards)

    def _run_one_by_one(self, lane: Lane, shards: Sequence[int]) -> _Batched:
        """Decide a batch's worth of messages in commits of their own.

        A message that fails even alone is ours to mend: it is set aside with its body.
        """
        decided: list[Decided] = []
        for _ in range(self._batch_size):
            one = self._run_one(lane, shards)
            if not one:
                return decided, []
            decided += one
        return decided, shards

    def _run_one(self, lane: Lane, shards: Sequence[int]) -> list[Decided]:
        """Decide the oldest message in a commit of its own; empty when there is none.

        One that fails is tried again, and set aside, while its queue is locked: whoever else drains
        it would take it away in between, and the message behind it would be set aside instead.
        """
        with self._transaction() as connection:
            messages = reads.claim(connection, lane, shards, 1).messages
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    return self._decide_inside(connection, lane, messages)
                except Exception as error:
                    if _is_away(error):
                        raise
                    # What we got wrong must not stop the queue.
                    _log.exception("message failed alone", shards=shards, attempt=attempt)
            return self._set_aside(connection, lane, messages)

    def _commit_batch(self, lane: Lane, shards: Sequence[int], limit: int) -> _Batched:
        while True:
            try:
                with self._transaction() as connection:
                    messages, unfinished = reads.claim(connection, lane, shards, limit)
                    return self._decide(connection, lane, messages), unfinished
            except _DeadlinePassedError:
                continue  # The clock has moved on: now they are refused.

    def _decide_inside(
        self, connection: psycopg.Connection[Any], lane: Lane, messages: Sequence[Message]
    ) -> list[Decided]:
        """Decide `messages`; when that fails, the database transaction goes on without it."""
        while True:
            try:
                with connection.transaction():
                    return self._decide(connection, lane, messages)
            except _DeadlinePassedError:
                continue

    def _decide(
        self, connection: psycopg.Connection[Any], lane: Lane, messages: Sequence[Message]
    ) -> list[Decided]:
        if not messages:
            return []
        loaded = self._load(connection, messages)
        # After the locks: what waited for another batch was not recorded before it.
        now = self._clock()
        batch = Batch(loaded, now=now, sandbox_delay=self._sandbox_delay)
        decided = batch.decide(messages)
        self._append(connection, batch.writes, now)
        with connection.pipeline():
            updates = list(self._change(connection, batch.writes, now))
            reads.remove(connection, lane, messages)
        for update in updates:
            update.check()
        if batch.first_deadline and self._clock() > batch.first_deadline:
            raise _DeadlinePassedError
        return decided

    def _load(
        self, connection: psycopg.Connection[Any], messages: Sequence[Message]
    ) -> BatchSnapshot:
        purchases = purchases_of(messages)
        customers = list({message.customer_id for message in messages})
        with connection.pipeline():
            # The locks come first: what is read after them cannot change any more.
            locked = reads.lock_accounts(connection, customers)
            asked = reads.columns(purchases)
            roll_ups = reads.roll_ups(connection, asked)
            outcomes = reads.outcomes(connection, map(key_of, messages))
            cards = reads.cards(connection, {purchase.card_id for purchase in purchases})
            debts = reads.debts(connection, customers)
            parked = reads.parked(connection, asked)
        accounts = locked()
        # Asked for where they are needed: most batches have none of them.
        closed, receivers = closed_cards(messages), receivers_of(messages)
        transfers = transfers_of(messages)
        return BatchSnapshot(
            outcomes=outcomes(),
            cards=cards(),
            accounts=accounts,
            roll_ups=roll_ups() + (reads.open_on_cards(connection, closed) if closed else []),
            debts=debts(),
            parked=parked(),
            transfers=reads.lock_transfers(connection, transfers) if transfers else {},
            names=reads.platform_customer_ids(connection, receivers) if receivers else {},
            system_accounts=self._chart(
                connection, {(a.platform_id, a.currency) for a in accounts.values()}
            ),
        )

    def _chart(
        self, connection: psycopg.Connection[Any], books: set[tuple[Id, str]]
    ) -> dict[tuple[Id, str, str], Id]:
        """Return the system accounts, which never change once they are there.

        A platform's new currency brings new ones: so what is known is known by currency, too.
        """
        known = {(platform_id, currency) for platform_id, currency, _ in self._system_accounts}
        missing = {platform_id for platform_id, _ in books - known}
        if missing:
            found = reads.system_accounts(connection, missing)
            self._system_accounts = {**self._system_accounts, **found}
        return self._system_accounts

    def _append(
        self, connection: psycopg.Connection[Any], writes: PendingWrites, now: datetime
    ) -> None:
        recording.append_events(connection, writes.events)
        recording.append_entries(connection, writes.entries)
        recording.append_deposits(connection, writes.deposits)
        recording.append_outcomes(connection, writes.outcomes, now)
        recording.append_rejections(connection, writes.rejections)
        recording.append_outbox(connection, writes.outbox)
        recording.park(connection, writes.parked)
        recording.await_confirmations(connection, writes.pending_pulls)
        recording.insert_roll_ups(
            connection, [case.roll_up for case in writes.cases if case.is_new]
        )
        inbox.accept_sync(connection, writes.follow_ups)

    def _change(
        self, connection: psycopg.Connection[Any], writes: PendingWrites, now: datetime
    ) -> Iterator[recording.Update]:
        recording.unpark(connection, writes.unparked)
        changed = [case.roll_up for case in writes.cases if not case.is_new]
        if changed:
            yield recording.update_roll_ups(connection, changed)
        if writes.accounts:
            yield recording.update_accounts(connection, writes.accounts, now)
        if writes.transfers:
            yield recording.end_transfers(connection, list(writes.transfers.values()))

    def _set_aside(
        self, connection: psycopg.Connection[Any], lane: Lane, messages: Sequence[Message]
    ) -> list[Decided]:
        detail = "it failed inside the ledger and was set aside; send it again once that is mended"
        reason = RejectionReason.INTERNAL_ERROR
        now = self._clock()
        rejected = [rejection_of(message, reason, detail, now) for message in messages]
        recording.append_rejections(connection, rejected)
        reads.remove(connection, lane, messages)
        self._give_up(connection, messages, now)
        return [
            Decided(message, OutcomeType.REJECTED, reason=reason, detail=detail)
            for message in messages
        ]

    def _give_up(
        self, connection: psycopg.Connection[Any], messages: Sequence[Message], now: datetime
    ) -> None:
        """Let transfers fail that `messages`, which are set aside, were to carry out.

        Where that is what fails, the queue goes on all the same: it is in the log.
        """
        transfers = transfers_of(messages)
        if not transfers:
            return
        try:
            with connection.transaction():
                found = reads.lock_transfers(connection, transfers)
                batch = Batch(BatchSnapshot(transfers=found), now=now, sandbox_delay=None)
                batch.give_up(messages)
                for update in self._change(connection, batch.writes, now):
                    update.check()
                recording.append_outbox(connection, batch.writes.outbox)
        except psycopg.OperationalError:
            raise
        except Exception:  # noqa: BLE001 - as for any message
            _log.exception(
                "a transfer that was set aside stays PROCESSING",
                transfers=[str(key) for key, _ in transfers],
            )

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield psycopg's connection in a database transaction of its own.

        Raises: UnavailableError when PostgreSQL is away or gave up; nothing was written, or, when
        only the answer to the commit was lost, all of it: the messages tell.
        """
        try:
            with self._database.begin() as connection:
                yield driver(connection)
        except _AWAY as error:
            if not _is_away(error):
                raise
            raise UnavailableError from error


def _is_away(error: Exception) -> bool:
    """Return whether `error` is PostgreSQL's, which is away or gave up, and no message's."""
    # A value too long for its index is the message's fault and stays so.
    return isinstance(error, _AWAY) and not isinstance(error, psycopg.errors.ProgramLimitExceeded)
