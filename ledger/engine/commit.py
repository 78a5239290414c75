"""One batch, one commit: the only place where events, entries and balances are committed.

A queue (lane and shard) is drained by one worker at a time, in order of arrival. A batch locks
the accounts of its cardholders in the order of their ids, loads what it needs with one statement
a table, decides, and writes everything in one database transaction (docs/decisions/0004).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from threading import Event
from typing import Any, Final

import psycopg
import structlog
from sqlalchemy import Engine as Database
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from cardledger.ledger.engine import reads, writes
from cardledger.ledger.engine.change_set import BatchSnapshot, PendingWrites
from cardledger.ledger.engine.decisions.batch import Batch
from cardledger.ledger.engine.parsing import (
    card_transaction_keys_of,
    closed_cards,
    key_of,
    receivers_of,
    rejection_of,
    transfers_of,
)
from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.ports import FundingRail
from cardledger.ledger.projections import transfers
from cardledger.ledger.storage.bulk_writes import SentUpdate
from cardledger.ledger.storage.engines import driver
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import OutcomeType, RejectionReason

Clock = Callable[[], datetime]

_Batched = tuple[list[Decided], Sequence[int]]  # With the queues that may have more.

_DATABASE_ERRORS: Final = (psycopg.OperationalError, DBAPIError, PoolTimeoutError)

_ATTEMPTS: Final = 2  # The first failure may be a lost race; the second is a defect of ours.

_log = structlog.get_logger()


class UnavailableError(Exception):
    """PostgreSQL is unavailable or cancelled the work; nothing was written. Retry later."""


class _DeadlinePassedError(Exception):
    """An approval would be committed after its `decideBy`; decide again."""


class Engine:
    """Drains queues of the inbox."""

    def __init__(
        self, database: Database, *, clock: Clock, batch_size: int, rail: FundingRail | None
    ) -> None:
        """Work on `database`, deciding at most `batch_size` messages a commit.

        `rail` is the connected funding rail, if any.
        """
        self._database: Final = database
        self._clock: Final = clock
        self._rail: Final = rail
        self._batch_size: Final = batch_size
        self._system_accounts: dict[tuple[Id, str, str], Id] = {}
        self._stopping: Final = Event()

    def drain(
        self, lane: Lane, shards: Sequence[int], committed: Callable[[list[Decided]], None]
    ) -> int:
        """Decide every message in the queues; call `committed` after every commit.

        Returns the number of messages decided.
        Raises: UnavailableError when PostgreSQL is; what was committed stays committed.
        """
        counts: list[int] = []

        def count(decided: list[Decided]) -> None:
            committed(decided)
            counts.append(len(decided))

        while shards:
            shards = self.step(lane, shards, count)
        return sum(counts)

    def step(
        self, lane: Lane, shards: Sequence[int], committed: Callable[[list[Decided]], None]
    ) -> Sequence[int]:
        """Decide one batch of messages from the queues; return the queues that may have more.

        Messages of different queues share a batch, and so a commit.
        Raises: as `drain`.
        """
        if self._stopping.is_set():
            return []
        decided, unfinished = self._run(lane, shards)
        if decided:
            committed(decided)
        return unfinished

    def stop(self) -> None:
        """Let drains end after their current batch; undecided messages stay in the inbox."""
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
        except Exception:  # noqa: BLE001 - one message must not stop the others
            _log.exception("batch failed; retrying its messages one by one", shards=shards)
            return self._run_one_by_one(lane, shards)

    def _run_one_by_one(self, lane: Lane, shards: Sequence[int]) -> _Batched:
        """Decide a batch's worth of messages in commits of their own.

        A message that fails even alone is quarantined: it is kept with its body.
        """
        decided: list[Decided] = []
        for _ in range(self._batch_size):
            oldest = self._run_one(lane, shards)
            if not oldest:
                return decided, []
            decided += oldest
        return decided, shards

    def _run_one(self, lane: Lane, shards: Sequence[int]) -> list[Decided]:
        """Decide the oldest message in a commit of its own; empty when there is none.

        A message that fails is retried, and quarantined, while its queue stays locked. Otherwise
        another worker could decide it in between, and the next message would be quarantined.
        """
        with self._transaction() as connection:
            messages = reads.claim(connection, lane, shards, 1).messages
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    return self._decide_inside(connection, lane, messages)
                except Exception as error:
                    if _is_unavailable(error):
                        raise
                    # A defect of ours must not stop the queue.
                    _log.exception("poison message", shards=shards, attempt=attempt)
            return self._quarantine(connection, lane, messages)

    def _commit_batch(self, lane: Lane, shards: Sequence[int], limit: int) -> _Batched:
        while True:
            try:
                with self._transaction() as connection:
                    messages, unfinished = reads.claim(connection, lane, shards, limit)
                    return self._decide(connection, lane, messages), unfinished
            except _DeadlinePassedError:
                continue  # By the later clock the approval is a decline.

    def _decide_inside(
        self, connection: psycopg.Connection[Any], lane: Lane, messages: Sequence[Message]
    ) -> list[Decided]:
        """Decide `messages` in a savepoint: a failure leaves the database transaction usable."""
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
        snapshot = self._load(connection, messages)
        # After the locks: a batch that waited for another is recorded later than the other.
        now = self._clock()
        batch = Batch(snapshot, now=now, rail=self._rail)
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
        keys = card_transaction_keys_of(messages)
        customers = list({message.customer_id for message in messages})
        with connection.pipeline():
            # The locks come first: what is read after them cannot change any more.
            accounts_of = reads.lock_accounts(connection, customers)
            key_columns = reads.columns(keys)
            roll_ups_of = reads.roll_ups(connection, key_columns)
            outcomes_of = reads.outcomes(connection, map(key_of, messages))
            cards_of = reads.cards(connection, {key.card_id for key in keys})
            debts_of = reads.debts(connection, customers)
            parked_of = reads.parked(connection, key_columns)
        accounts = accounts_of()
        # Read only when needed: most batches have none of them.
        closed, receivers = closed_cards(messages), receivers_of(messages)
        transfers = transfers_of(messages)
        return BatchSnapshot(
            outcomes=outcomes_of(),
            cards=cards_of(),
            accounts=accounts,
            roll_ups=roll_ups_of() + (reads.open_on_cards(connection, closed) if closed else []),
            debts=debts_of(),
            parked=parked_of(),
            transfers=reads.lock_transfers(connection, transfers) if transfers else {},
            platform_customer_ids=(
                reads.platform_customer_ids(connection, receivers) if receivers else {}
            ),
            system_accounts=self._chart(
                connection,
                {(account.platform_id, account.currency) for account in accounts.values()},
            ),
        )

    def _chart(
        self, connection: psycopg.Connection[Any], charts: set[tuple[Id, str]]
    ) -> dict[tuple[Id, str, str], Id]:
        """Return the system accounts of `charts`, each a platform and a currency.

        They are cached: a platform's system accounts of a currency never change.
        """
        known = {(platform_id, currency) for platform_id, currency, _ in self._system_accounts}
        missing = {platform_id for platform_id, _ in charts - known}
        if missing:
            loaded = reads.system_accounts(connection, missing)
            self._system_accounts = {**self._system_accounts, **loaded}
        return self._system_accounts

    def _append(
        self, connection: psycopg.Connection[Any], pending: PendingWrites, now: datetime
    ) -> None:
        writes.append_events(connection, pending.events)
        writes.append_entries(connection, pending.entries)
        writes.append_deposits(connection, pending.deposits)
        writes.append_outcomes(connection, pending.outcomes, now)
        writes.append_rejections(connection, pending.rejections)
        writes.append_outbox(connection, pending.outbox)
        writes.park(connection, pending.parked)
        writes.await_confirmations(connection, pending.pending_pulls)
        writes.insert_roll_ups(
            connection,
            [context.roll_up for context in pending.card_transactions if context.is_new],
        )
        inbox.accept(connection, pending.follow_ups)

    def _change(
        self, connection: psycopg.Connection[Any], pending: PendingWrites, now: datetime
    ) -> Iterator[SentUpdate]:
        writes.unpark(connection, pending.unparked)
        changed = [context.roll_up for context in pending.card_transactions if not context.is_new]
        if changed:
            yield writes.update_roll_ups(connection, changed)
        if pending.accounts:
            yield writes.update_accounts(connection, pending.accounts, now)
        if pending.transfers:
            yield transfers.end(connection, list(pending.transfers.values()))

    def _quarantine(
        self, connection: psycopg.Connection[Any], lane: Lane, messages: Sequence[Message]
    ) -> list[Decided]:
        """Reject `messages`, which fail inside the ledger, and keep their bodies."""
        detail = "Internal processing error; event quarantined. Resubmit after the fix."
        reason = RejectionReason.INTERNAL_ERROR
        now = self._clock()
        rejected = [rejection_of(message, reason, detail, now) for message in messages]
        writes.append_rejections(connection, rejected)
        reads.remove(connection, lane, messages)
        self._fail_transfers(connection, messages, now)
        return [
            Decided(message, OutcomeType.REJECTED, reason=reason, detail=detail)
            for message in messages
        ]

    def _fail_transfers(
        self, connection: psycopg.Connection[Any], messages: Sequence[Message], now: datetime
    ) -> None:
        """Fail the transfers that quarantined `messages` were to carry out.

        When that fails as well, it is logged and the queue goes on.
        """
        transfers = transfers_of(messages)
        if not transfers:
            return
        try:
            with connection.transaction():
                snapshot = BatchSnapshot(transfers=reads.lock_transfers(connection, transfers))
                batch = Batch(snapshot, now=now, rail=None)
                batch.fail_transfers(messages)
                for update in self._change(connection, batch.writes, now):
                    update.check()
                writes.append_outbox(connection, batch.writes.outbox)
        except psycopg.OperationalError:
            raise
        except Exception:  # noqa: BLE001 - a defect of ours must not stop the queue
            _log.exception(
                "quarantined transfer stays PROCESSING",
                transfers=[str(key) for key, _ in transfers],
            )

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield psycopg's connection in a database transaction of its own.

        Raises: UnavailableError when PostgreSQL is unavailable or cancelled the work. Nothing was
        written, unless only the answer to the commit was lost: then the messages are decided.
        """
        try:
            with self._database.begin() as connection:
                yield driver(connection)
        except _DATABASE_ERRORS as error:
            if not _is_unavailable(error):
                raise
            raise UnavailableError from error


def _is_unavailable(error: Exception) -> bool:
    """Return whether `error` says that PostgreSQL is unavailable, whatever the message."""
    # A value too long for its index is an error of the message and stays one.
    return isinstance(error, _DATABASE_ERRORS) and not isinstance(
        error, psycopg.errors.ProgramLimitExceeded
    )
