"""One batch, one commit: the only place where events, entries and balances are committed.

A queue (lane and shard) is drained by one worker at a time, in order of arrival. A batch locks
the accounts of its cardholders in the order of their ids, loads what it needs with one statement
a table, decides, and writes everything in one database transaction (docs/decisions/0004).

It waits for a lock as long as `batch_connections` says, then it is repeated without waiting, and
without the cardholders whose rows another session has locked (docs/decisions/0028).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event
from typing import Any, Final

import psycopg
import structlog
from sqlalchemy import Engine as Database

from cardledger.ledger.engine import rejections, stalls
from cardledger.ledger.engine.claimer import Claimer, Queues
from cardledger.ledger.engine.decider import Clock, Decider, ids_before
from cardledger.ledger.engine.failures import (
    CardholderLockedError,
    DeadlinePassedError,
    FailedError,
    LockedError,
    SlowMessageError,
    StaleSnapshotError,
    UnavailableError,
    describe,
    is_canary,
    is_cancelled,
    is_fault_of_message,
    is_too_slow,
    is_unavailable,
    log_ids,
    repeated,
    succeeds,
)
from cardledger.ledger.engine.opening import DATABASE_ERRORS, opened
from cardledger.ledger.engine.records import Committed, Decided
from cardledger.ledger.engine.stalls import SAMPLE, Stall, Stalls
from cardledger.ledger.messaging import claims
from cardledger.ledger.messaging.inbox import CANARY_CUSTOMERS, Lane, Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.ports import FundingRail
from cardledger.ledger.storage import engines
from cardledger.schema.ids import Id

_Answer = Callable[[list[Decided]], None]  # Called with what has just been committed.
_Batched = tuple[list[Decided], Sequence[int]]  # With the queues that may have more.

_SMALL: Final = 4  # A batch of this part of its usual size is not too slow for its number alone.
_NEIGHBOURS: Final = 8  # Messages that are tried before one is quarantined for its data.

_log = structlog.get_logger()


class Engine:
    """Drains queues of the inbox."""

    def __init__(
        self,
        database: Database,
        *,
        key: InboxKey,
        batch_size: int,
        rail: FundingRail | None,
        clock: Clock | None = None,
    ) -> None:
        """Work on `database`, deciding at most `batch_size` messages a commit.

        Only what was accepted with `key` is decided. `rail` is the connected funding rail, if any.
        Decisions are made by PostgreSQL's clock, or by `clock` when there is one: for tests.
        """
        self._database: Final = database
        self._looks: Final = database.execution_options(isolation_level="AUTOCOMMIT")
        self._key: Final = key
        self._decider: Final = Decider(key, rail, clock)
        self._claims: Final = Claimer(key, self._decider.now)
        self.locked_cardholders: Final = self._claims.locked.left_out
        self._batch_size: Final = batch_size
        self._sizes: Final = dict.fromkeys(Lane, batch_size)  # Of the next batch.
        self._stalls: Final = Stalls()
        self.stopped_queues: Final = self._stalls.stopped_queues
        self._is_silent = False  # Stalls cannot be published, and the log has it.
        self._stopping: Final = Event()

    def drain(self, lane: Lane, shards: Sequence[int], committed: _Answer) -> int:
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

    def step(self, lane: Lane, shards: Sequence[int], committed: _Answer) -> Sequence[int]:
        """Decide one batch of messages from the queues; return the queues that may have more.

        Messages of different queues share a batch, and so a commit. When they are decided one by
        one, `committed` is called after each, for which a caller may wait. What others have locked
        is left to a later call, which finds it among the queues that are `waiting`.
        Raises: as `drain`.
        """
        if self._stopping.is_set():
            return []
        try:
            decided, unfinished = self._run(lane, shards, committed)
        except LockedError as error:
            _log.info("lock not available; the sweeper will retry", error=str(error.__cause__))
            return []
        continued = [each for each in decided if each.continues]
        if not continued:
            return unfinished
        if lane is Lane.BULK:
            return list({*unfinished, *(each.message.shard for each in continued)})
        return list({*unfinished, *(shard for each in continued for shard in each.wakes)})

    def stop(self) -> None:
        """Let drains end after their current batch; undecided messages stay in the inbox."""
        self._stopping.set()

    def waiting(self) -> list[tuple[Lane, int]]:
        """Return the queues that have messages.

        Raises: UnavailableError when PostgreSQL is.
        """
        with opened(self._looks.connect) as connection:
            oldest = claims.waiting(connection)
        self._claims.found(oldest)
        waiting = [(lane, shard) for lane, shard, _ in oldest]
        with suppress(*DATABASE_ERRORS), opened(self._looks.connect) as connection:
            self._stalls.adopt(stalls.published(connection), waiting)
        self._publish_stalls()
        return waiting

    def _run(self, lane: Lane, shards: Sequence[int], committed: _Answer) -> _Batched:
        ready = self._stalls.ready(lane, shards)
        if not ready:
            return [], []
        try:
            if self._stalls.are_stopped(lane, ready):
                return self._run_stopped(lane, ready, committed)
            return self._run_batch(lane, ready, committed)
        finally:
            self._publish_stalls()

    def _run_batch(self, lane: Lane, shards: Sequence[int], committed: _Answer) -> _Batched:
        """Decide a batch without stalled cardholders, except one that is retried."""
        due = self._stalls.due(lane, shards)
        queues = Queues(lane, shards, self._stalls.held(lane, shards, except_for=due))
        try:
            batch = self._commit_past_locks(queues)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - one message must not stop the others
            return self._run_after(error, queues, committed, due)
        if batch is None:
            try:
                return self._run_to_the_obstacle(queues, committed)
            except FailedError as error:
                return self._run_after(error, queues, committed, due)
        if batch.decided:
            committed(batch.decided)
        if succeeds(batch.decided):
            self._stalls.note_success(lane)
        if due and batch.has_reached(due.shard, due.customer_id):
            self._stalls.end(due)
            return batch.decided, shards  # Others that wait are to be tried, too.
        if due:  # The batch has passed over it, and so says nothing of it.
            self._stalls.postpone(due)
        return batch.decided, batch.unfinished

    def _run_after(
        self, error: Exception, queues: Queues, committed: _Answer, due: Stall | None
    ) -> _Batched:
        """Go on after the `error` of a batch in which `due`, if any, was retried."""
        if due and not (due.others_succeed and is_fault_of_message(error)):
            self._stalls.hold_again(due, describe(error))
            return [], queues.shards
        if due:
            self._stalls.end(due)
        _log.warning("batch failed; deciding its messages one by one", error=describe(error))
        return self._run_one_by_one(
            queues.lane, queues.shards, committed, others_succeed=due is not None
        )

    def _commit_past_locks(self, queues: Queues) -> Committed | None:
        """Decide a batch; None when one message seems to keep it from its end."""
        is_small = self._sizes[queues.lane] <= max(self._batch_size // _SMALL, 1)
        try:
            return self._commit_batch(queues)
        except LockedError:
            with suppress(LockedError):
                return self._commit_batch(queues, waits=False)
        except UnavailableError as error:
            if not is_cancelled(error) or self._claims.locked.blame_slow_again() or not is_small:
                raise
        return None

    def _run_to_the_obstacle(self, queues: Queues, committed: _Answer) -> _Batched:
        """Decide messages one by one until it is known whose cannot be decided in time.

        Another session holds a lock on a row that `locked_by_others` does not look at, or the
        message alone takes too long. That cardholder is left out of the next batches, and no others
        are.
        """
        decided: list[Decided] = []
        for _ in range(self._batch_size):
            try:
                oldest = self._run_one(queues, committed, others_succeed=False)
            except CardholderLockedError:
                break
            except (UnavailableError, FailedError) as error:
                if isinstance(error, SlowMessageError):
                    decided += self._run_past(error.cardholder, queues, committed)
                if not decided:
                    raise
                break  # What was decided is committed, and may go on elsewhere.
            if not oldest:
                break
            decided += oldest
        if succeeds(decided):
            self._stalls.note_success(queues.lane)
        return decided, queues.shards

    def _run_past(self, slow: Id, queues: Queues, committed: _Answer) -> list[Decided]:
        """Decide the oldest message of others than the cardholder who seems to be `slow`.

        When that succeeds, PostgreSQL as a whole is not, and the cardholder is left out of batches.
        """
        try:
            decided = self._run_one(
                queues._replace(held=[*queues.held, slow]), committed, others_succeed=False
            )
        except (UnavailableError, FailedError):
            return []
        if succeeds(decided):
            self._claims.locked.blame_slow(slow)
            _log.warning("slow cardholder left out of batches", cardholder=str(slow))
        return decided

    def _run_one_by_one(
        self,
        lane: Lane,
        shards: Sequence[int],
        committed: _Answer,
        *,
        others_succeed: bool = False,
        until_success: bool = False,
    ) -> _Batched:
        """Decide at most a batch's worth of messages in commits of their own.

        Ends as soon as it is known who fails: that cardholder waits, the others are decided in
        batches again. When no message succeeds, and different cardholders fail with the same error,
        the queues stop. With `until_success` one that succeeds is enough.
        """
        decided: list[Decided] = []
        failures: list[FailedError] = []
        left_out: list[Id] = []  # Of those who fail, when too many wait already.
        for _ in range(self._batch_size):
            canaries = self._canaries_of_stopped(lane, shards) if until_success else ()
            held = [*self._stalls.held(lane, shards), *left_out, *canaries]
            queues = Queues(lane, shards, held)
            try:
                others_do = others_succeed or succeeds(decided)
                oldest = self._run_one(queues, committed, others_succeed=others_do)
            except FailedError as failure:
                if failure.message is None:
                    self._stalls.stop(lane, shards, failure)
                    return decided, []
                failures.append(failure)
                left_out += () if self._stalls.hold(failure) else [failure.message.customer_id]
                if succeeds(decided) or len(failures) == SAMPLE:
                    break
            except UnavailableError:
                if not decided:
                    raise
                return decided, []  # Those are committed, and may go on elsewhere.
            else:
                decided += oldest
                if not oldest or ((failures or until_success) and succeeds(oldest)):
                    break
        return decided, self._conclude(lane, shards, failures, decided, are_many=bool(left_out))

    def _run_stopped(self, lane: Lane, shards: Sequence[int], committed: _Answer) -> _Batched:
        """Try messages one by one where a queue has stopped, until one is decided.

        When all that wait there have failed before, one whose turn it is.
        """
        decided, unfinished = self._run_one_by_one(lane, shards, committed, until_success=True)
        shards = self._stalls.ready(lane, shards)  # Not those that have stopped again.
        if decided or not self._stalls.are_stopped(lane, shards):
            return decided, unfinished
        self._stalls.lapse(lane, shards)
        due = self._stalls.due(lane, shards)
        if due is None:
            self._resume_empty(lane, shards)
            return [], unfinished
        held = self._stalls.held(lane, shards, except_for=due)
        # In this queue alone: of several, the claim passes over those that another worker drains.
        queues = Queues(lane, [due.shard], [*held, CANARY_CUSTOMERS[due.shard]])
        try:
            decided = self._run_one(queues, committed, others_succeed=False)
        except FailedError as failure:
            if failure.message is None:
                self._stalls.stop(lane, shards, failure)
            else:
                self._stalls.hold(failure)
            return [], unfinished
        if not decided:
            if due.customer_id in self._claims.locked.left_out():
                self._stalls.postpone(due)
            else:  # Another worker has decided what it waited for.
                self._stalls.end(due)
        return decided, self._conclude(lane, shards, [], decided)

    def _canaries_of_stopped(self, lane: Lane, shards: Sequence[int]) -> list[Id]:
        """Return the customers of the canaries that stay in those of `shards` that have stopped.

        That they wait shows everybody that nothing is decided there.
        """
        return [
            CANARY_CUSTOMERS[shard] for shard in shards if self._stalls.are_stopped(lane, [shard])
        ]

    def _resume_empty(self, lane: Lane, shards: Sequence[int]) -> None:
        """Let those of `shards` go on whose messages others have decided, or removed."""
        with opened(self._database.begin) as connection:
            waiting = claims.with_events(connection, lane, shards)
        self._stalls.resume(lane, [shard for shard in shards if shard not in waiting])

    def _conclude(
        self,
        lane: Lane,
        shards: Sequence[int],
        failures: list[FailedError],
        decided: list[Decided],
        *,
        are_many: bool = False,
    ) -> Sequence[int]:
        """Stop or resume queues after `failures`; return those that may have more messages.

        `are_many` says that too many cardholders wait already to let those of `failures` wait, too.
        """
        self._stalls.note_readable(lane, shards)
        if succeeds(decided):
            self._stalls.note_success(lane)
            return shards
        if not failures:
            return shards if decided else []
        if are_many or self._stalls.are_systemic(failures):
            self._stalls.stop(lane, shards, failures[-1])
            return []
        return shards

    def _run_one(
        self, queues: Queues, committed: _Answer, *, others_succeed: bool
    ) -> list[Decided]:
        """Do as `_commit_one`, and call `committed` with what was decided."""
        decided = self._commit_one(queues, others_succeed=others_succeed)
        if decided:
            committed(decided)
        return decided

    def _commit_one(self, queues: Queues, *, others_succeed: bool) -> list[Decided]:
        """Decide the oldest message in a commit of its own; empty when there is none.

        A message that fails is retried, and quarantined when its own data is the reason, while its
        queue stays locked. Otherwise another worker could decide it in between, and the next
        message would be quarantined.
        Raises: FailedError when it fails for another reason; it stays in the inbox.
        """
        messages: list[Message] = []
        try:
            with opened(self._database.begin) as connection:
                messages, refused = self._claims.claim_oldest(connection, queues)
                if not messages:
                    return refused
                return self._decide_alone(
                    connection, queues, messages, others_succeed=others_succeed
                )
        except LockedError as error:
            if not messages:
                raise
            # A row that `locked_by_others` does not look at.
            self._claims.locked.blame(messages[0].customer_id)
            _log.warning("locked cardholder left out of batches", **log_ids(messages[0]))
            raise CardholderLockedError from error
        except UnavailableError as error:
            if messages and is_cancelled(error) and not is_canary(messages[0]):
                raise SlowMessageError(messages[0].customer_id) from error
            raise
        except Exception as error:
            raise FailedError(messages[0] if messages else None, describe(error)) from error

    def _decide_alone(
        self,
        connection: psycopg.Connection[Any],
        queues: Queues,
        messages: Sequence[Message],
        *,
        others_succeed: bool,
    ) -> list[Decided]:
        try:
            return self._decider.decide_inside(connection, messages)
        except Exception as error:
            if is_unavailable(error):
                raise
        try:  # Again: the first failure may be a lost race.
            return self._decider.decide_inside(connection, messages)
        except Exception as error:
            if not is_fault_of_message(error):
                raise
            if not (others_succeed or self._a_neighbour_succeeds(connection, queues)):
                raise
            _log.error("poison message", **log_ids(messages[0]), error=describe(error))
        return rejections.quarantine(connection, messages, self._decider.now(connection), self._key)

    def _a_neighbour_succeeds(self, connection: psycopg.Connection[Any], queues: Queues) -> bool:
        """Return whether a message behind the oldest can be decided; nothing is written."""
        claimed = self._claims.claim(connection, queues, 1 + _NEIGHBOURS, waits=False)
        for neighbour in claimed.messages[1:]:
            if is_canary(neighbour):
                continue
            try:
                with connection.transaction(force_rollback=True):
                    self._decider.decide(connection, [neighbour])
            except (DeadlinePassedError, StaleSnapshotError):
                return True
            except Exception as error:
                if engines.is_cancelled(error):
                    return False  # That neighbour is slow, and not the message before it.
                if is_unavailable(error):
                    raise
            else:
                return True
        return False

    def _publish_stalls(self) -> None:
        """Write stalls to their table, which may itself be the cause of the failure."""
        if not self._stalls.is_dirty:
            return
        try:
            with opened(self._database.begin) as connection:
                committed = self._stalls.publish(connection)
        except (UnavailableError, *DATABASE_ERRORS) as error:
            if not self._is_silent:
                _log.error("stalled queues are not shown to others", error=describe(error))
            self._is_silent = True
        else:
            committed()
            self._is_silent = False

    def _commit_batch(self, queues: Queues, *, waits: bool = True) -> Committed:
        """Decide a batch in one database transaction, which is repeated when it comes too late.

        Repeated, it has no other messages than before, and of each cardholder those before the
        first that would be late again: short deadlines that keep arriving delay no others.
        """
        size = self._sizes[queues.lane]
        repeated_ids: set[Id] | None = None

        def commit() -> Committed:
            nonlocal repeated_ids
            with opened(self._database.begin) as connection:
                claimed = self._claims.claim(connection, queues, size, waits=waits)
                messages: Sequence[Message] = claimed.messages
                if repeated_ids is not None:
                    messages = [one for one in messages if one.id in repeated_ids]
                try:
                    decided = self._decider.decide(connection, messages)
                except DeadlinePassedError as error:
                    repeated_ids = ids_before(messages, error.messages)
                    raise
                unfinished = claimed.unfinished if repeated_ids is None else queues.shards
                return Committed([*claimed.refused, *decided], unfinished, claimed.left_out)

        try:
            committed = repeated(commit)
        except LockedError:
            raise
        except UnavailableError as error:
            if is_too_slow(error):
                self._sizes[queues.lane] = max(size // 2, 1)
            raise
        if len(committed.decided) >= size:  # A smaller one says nothing about one of this size.
            self._sizes[queues.lane] = min(2 * size, self._batch_size)
        return committed
