"""Stalls: cardholders whose messages fail by an internal error, and queues in which all of them do.

A failure that a message's own data does not explain is internal: a revoked privilege, a column of
another release, a defect. It never rejects a message (docs/decisions/0029). The messages of the
cardholder wait, or the whole queue stops when different cardholders fail with the same error and
none succeeds; both are tried again, with a growing delay, and go on by themselves after the repair.

Each worker keeps its own list of stalls. The table `stalled_queues` shows them to operators, and to
workers that are started later.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic
from traceback import extract_tb
from typing import Any, Final, TypeVar

import psycopg
import structlog
from psycopg import Connection
from psycopg.errors import (
    CharacterNotInRepertoire,
    ProgramLimitExceeded,
    UntranslatableCharacter,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging.inbox import CANARIES_FROM, UNROUTED, Lane, Message
from cardledger.ledger.storage.engines import is_unable, message_of
from cardledger.schema.ids import Id

SAMPLE: Final = 4
"""Cardholders whose messages are tried before their queues stop."""

HELD_LIMIT: Final = 100
"""Cardholders that wait alone in one lane; when more fail, their queues stop."""

_CLOSED_DAY: Final = "CL004"
"""SQLSTATE of the trigger of `entries` that refuses a day for which the books are closed."""

Result = TypeVar("Result")

_SNAPSHOTS: Final = 5  # Of one batch.

_OURS: Final = Path(__file__).parents[1]  # The folder of what can fail.

_FIRST_DELAY_S: Final = 0.25
_DELAY_LIMIT_S: Final = 5.0
_ERROR_LENGTH: Final = 300  # Characters of an error that are kept.
_PLACE: Final = re.compile(r"^([0-9A-Z]{5}: .*) \(\w+\.py:\d+\)$")  # `describe` of an SQLSTATE.
_SHOWN: Final = 200  # Characters of an id in a line of the log.

# A value of the message that no repair of the schema makes storable.
_FAULTS_OF_A_MESSAGE: Final = (
    ProgramLimitExceeded,  # Too long for an index.
    CharacterNotInRepertoire,
    UntranslatableCharacter,
)

_log = structlog.get_logger()


class UnavailableError(Exception):
    """PostgreSQL is unavailable or cancelled the work; nothing was written. Retry later."""


class LockedError(UnavailableError):
    """Another session has locked a row for longer than a batch waits; nothing was written."""


class DeadlinePassedError(Exception):
    """An approval would be committed after its `decideBy`; by the later clock it is a decline."""


class StaleSnapshotError(Exception):
    """What was read is not true any more: read again.

    A card, a card transaction or a transfer is on an account that is not locked, or the books were
    closed for a day on which an entry was to be posted.
    """


@contextmanager
def open_days() -> Iterator[None]:
    """Have entries written on days that are open.

    Raises: StaleSnapshotError when the books were closed for one of them meanwhile.
    """
    try:
        yield
    except psycopg.DatabaseError as error:
        if error.sqlstate != _CLOSED_DAY:
            raise
        raise StaleSnapshotError from error


def repeated(decide: Callable[[], Result]) -> Result:
    """Return the result of `decide`, which is called again when it has lost a race.

    Raises: StaleSnapshotError when several snapshots in a row were stale.
    """
    stale = 0
    while True:
        try:
            return decide()
        except DeadlinePassedError:
            continue
        except StaleSnapshotError:
            stale += 1
            if stale == _SNAPSHOTS:
                raise


def is_unavailable(error: Exception) -> bool:
    """Return whether `error` says that PostgreSQL is unavailable, whatever the message."""
    cause = getattr(error, "orig", None) or error
    if isinstance(cause, psycopg.errors.ProgramLimitExceeded):
        return False  # A value too long for its index is an error of the message.
    return is_unable(cause) or isinstance(
        cause,
        UnavailableError
        | PoolTimeoutError
        | psycopg.OperationalError
        | psycopg.InterfaceError
        | psycopg.errors.IdleInTransactionSessionTimeout,
    )


def is_fault_of_message(error: BaseException) -> bool:
    """Return whether `error` can only come from the data of the message that it failed on."""
    return isinstance(error, _FAULTS_OF_A_MESSAGE)


class FailedError(Exception):
    """A message failed even alone and stays in the inbox; None: the queues cannot be read."""

    def __init__(self, message: Message | None, error: str) -> None:
        super().__init__(error)
        self.message: Final = message
        self.error: Final = error


def succeeds(decided: Sequence[Decided]) -> bool:
    """Return whether an event was decided.

    Canaries, for which nothing is written, and forged messages, which are moved away, say nothing
    of others.
    """
    return any(not each.is_forged and not is_canary(each.message) for each in decided)


def is_canary(message: Message) -> bool:
    """Return whether `message` is a canary, of which nothing is written."""
    return message.customer_id >= CANARIES_FROM


def describe(error: BaseException) -> str:
    """Return what failed and where, in one line without the data of rows."""
    if isinstance(error, psycopg.Error):
        what = f"{error.sqlstate or type(error).__name__}: {message_of(error)}"
    else:
        what = f"{type(error).__name__}: {error}"
    ours = [
        frame for frame in extract_tb(error.__traceback__) if _OURS in Path(frame.filename).parents
    ]
    where = f" ({Path(ours[-1].filename).name}:{ours[-1].lineno})" if ours else ""
    return " ".join(what.split())[:_ERROR_LENGTH] + where


def log_ids(message: Message) -> dict[str, str]:
    """Return what a line of the log about `message` names: itself, its event, its purchase."""
    named = {
        "message_id": str(message.id),
        "network_event": f"{message.source}/{message.reference}"[:_SHOWN],
    }
    if isinstance(message.body, dict):  # It may be malformed.
        found = {"card": "cardId", "issuer_transaction_token": "issuerTransactionToken"}
        named |= {
            name: str(message.body[field])[:_SHOWN]
            for name, field in found.items()
            if field in message.body
        }
    return named


@dataclass(slots=True)
class Stall:
    """A stalled cardholder, or without a cardholder a stalled queue."""

    lane: Lane
    shard: int
    customer_id: Id | None
    message_id: Id | None  # None: the queue could not even be read.
    error: str
    attempts: int = 0
    retry_at: float = 0.0  # By the monotonic clock.
    is_published: bool = False
    others_succeed: bool = False  # Since it failed.

    @property
    def place(self) -> "_Place":
        return self.lane, self.shard, self.customer_id


_Place = tuple[Lane, int, Id | None]


class Stalls:
    """The stalls that one worker knows of. Its threads share it."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Know of none; `clock` returns seconds."""
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._stalls: Final[dict[_Place, Stall]] = {}
        self._ended: Final[set[_Place]] = set()  # Still in the table.

    # --- what may be decided -----------------------------------------------------------------

    def ready(self, lane: Lane, shards: Iterable[int]) -> list[int]:
        """Return those of `shards` that have not stopped, or may be tried again."""
        now = self._clock()
        with self._lock:
            stopped = {
                stall.shard
                for stall in self._stalls.values()
                if stall.lane is lane and stall.customer_id is None and stall.retry_at > now
            }
        return [shard for shard in shards if shard not in stopped]

    def stopped_queues(self) -> int:
        """Return how many queues have stopped, as far as this worker knows."""
        with self._lock:
            return sum(stall.customer_id is None for stall in self._stalls.values())

    def are_stopped(self, lane: Lane, shards: Iterable[int]) -> bool:
        """Return whether one of `shards` has stopped."""
        with self._lock:
            return any((lane, shard, None) in self._stalls for shard in shards)

    def held(
        self, lane: Lane, shards: Sequence[int], *, except_for: Stall | None = None
    ) -> list[Id]:
        """Return the cardholders in `shards` that wait alone, `except_for` the one to be tried."""
        with self._lock:
            return [
                stall.customer_id
                for stall in self._held(lane, shards)
                if stall.customer_id and stall is not except_for
            ]

    def due(self, lane: Lane, shards: Sequence[int]) -> Stall | None:
        """Return the cardholder in `shards` that is to be tried again, one at a time."""
        with self._lock:
            first = min(self._held(lane, shards), key=lambda stall: stall.retry_at, default=None)
        return first if first and first.retry_at <= self._clock() else None

    def _held(self, lane: Lane, shards: Sequence[int]) -> list[Stall]:
        return [
            stall
            for stall in self._stalls.values()
            if stall.lane is lane and stall.customer_id is not None and stall.shard in shards
        ]

    # --- what happened -----------------------------------------------------------------------

    def hold(self, failure: FailedError) -> bool:
        """Let the cardholder of a failed message wait alone.

        Returns False when that is impossible: there is no message, or too many wait already.
        """
        message = failure.message
        if message is None:
            return False
        place = message.lane, message.shard, message.customer_id
        with self._lock:
            if place not in self._stalls and len(self._stalls) >= HELD_LIMIT:
                return False
        # Longer than a queue waits, so that it tries other cardholders first.
        self._add(place, message.id, failure.error, delay_s=2 * _FIRST_DELAY_S, message=message)
        return True

    def hold_again(self, stall: Stall, error: str) -> None:
        """Let the cardholder of `stall`, which was tried again, wait longer."""
        self._add(stall.place, stall.message_id, error, delay_s=2 * _FIRST_DELAY_S)

    def stop(self, lane: Lane, shards: Iterable[int], failure: FailedError) -> None:
        """Stop the queues of `shards`, in which messages fail for the reason of `failure`."""
        message_id = failure.message.id if failure.message else None
        for shard in shards:
            place = lane, shard, None
            self._add(
                place, message_id, failure.error, delay_s=_FIRST_DELAY_S, message=failure.message
            )

    def are_systemic(self, failures: Iterable[FailedError]) -> bool:
        """Return whether one of `failures` is not that of its cardholder alone.

        It is not when another cardholder of its lane has failed with the same error, now or in an
        earlier batch, and no message has been decided since: with little traffic each batch has
        one cardholder.
        """
        failed = [(each.message, _cause(each.error)) for each in failures if each.message]
        cardholders: dict[tuple[Lane, str], set[Id]] = defaultdict(set)
        for message, cause in failed:
            cardholders[message.lane, cause].add(message.customer_id)
        with self._lock:
            for stall in self._stalls.values():
                if stall.customer_id is not None and not stall.others_succeed:
                    cardholders[stall.lane, _cause(stall.error)].add(stall.customer_id)
        return any(len(cardholders[message.lane, cause]) > 1 for message, cause in failed)

    def note_success(self, lane: Lane) -> None:
        """Remember that messages of `lane` were decided beside those that wait."""
        with self._lock:
            for stall in self._stalls.values():
                if stall.lane is lane:
                    stall.others_succeed = True

    def end(self, stall: Stall) -> None:
        """Let the cardholder of `stall` go on."""
        with self._lock:
            self._remove([stall.place])

    def resume(self, lane: Lane, shards: Sequence[int]) -> None:
        """Let those of `shards` that have stopped go on, and try who waits in them again."""
        with self._lock:
            stopped = [shard for shard in shards if (lane, shard, None) in self._stalls]
            self._remove([(lane, shard, None) for shard in stopped])
            for stall in self._held(lane, stopped):
                stall.retry_at = 0.0

    def _add(
        self,
        place: _Place,
        message_id: Id | None,
        error: str,
        *,
        delay_s: float,
        message: Message | None = None,
    ) -> None:
        with self._lock:
            known = self._stalls.get(place)
            stall = known or Stall(*place, message_id=message_id, error=error)
            stall.message_id, stall.error = message_id, error
            stall.attempts += 1
            delay_s = min(_DELAY_LIMIT_S, delay_s * 2 ** min(stall.attempts - 1, 10))
            stall.retry_at = self._clock() + delay_s
            stall.is_published = False
            self._stalls[place] = stall
            self._ended.discard(place)
        if known is None:
            shown = _shown(stall) | (log_ids(message) if message else {})
            _log.error("stalled; waiting for a repair, nothing is rejected", **shown)

    def _remove(self, places: Iterable[_Place]) -> None:
        for place in places:
            if stall := self._stalls.pop(place, None):
                self._ended.add(place)
                _log.info("no longer stalled", **_shown(stall))

    # --- the table ---------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether the table differs from what is known here."""
        with self._lock:
            return bool(self._ended) or any(
                not stall.is_published for stall in self._stalls.values()
            )

    def publish(self, connection: Connection[Any]) -> Callable[[], None]:
        """Write what has changed; call the result once it is committed."""
        with self._lock:
            ended = list(self._ended)
            changed = [stall for stall in self._stalls.values() if not stall.is_published]
            rows = [_row(stall) for stall in changed]
        with connection.cursor() as cursor:
            if ended:
                cursor.executemany(_DELETE, [_key(place) for place in ended])
            if rows:
                cursor.executemany(_UPSERT, rows)

        def committed() -> None:
            with self._lock:
                self._ended.difference_update(ended)
                for stall in changed:
                    stall.is_published = True

        return committed

    def adopt(self, published: Iterable["Stall"], waiting: Iterable[tuple[Lane, int]]) -> None:
        """Take over from the table: what others found is tried here, too, and what they ended.

        A queue without messages waits for nothing.
        """
        queues = set(waiting)
        table = {stall.place: stall for stall in published}
        with self._lock:
            for place, stall in table.items():
                if place not in self._stalls and place not in self._ended:
                    self._stalls[place] = stall
            for place, stall in self._stalls.items():
                if stall.is_published and place not in table:
                    stall.retry_at = 0.0  # Another worker has decided its messages.
            self._remove([place for place in self._stalls if place[:2] not in queues])


def _cause(error: str) -> str:
    # A pipeline raises an error of PostgreSQL at whichever statement comes next.
    return _PLACE.sub(r"\1", error)


def _shown(stall: Stall) -> dict[str, object]:
    shown: dict[str, object] = {"lane": stall.lane.name, "shard": stall.shard}
    if stall.customer_id is not None:
        shown["customer_id"] = str(stall.customer_id)
    return shown | {
        "message_id": str(stall.message_id) if stall.message_id else None,
        "error": stall.error,
        "attempts": stall.attempts,
    }


_READ: Final = """
    SELECT lane, shard, CASE WHEN NOT is_whole_queue THEN customer_id END, message_id, error,
        attempts
    FROM stalled_queues ORDER BY since LIMIT %s
"""
_ROWS_LIMIT: Final = 1000

_UPSERT: Final = """
    INSERT INTO stalled_queues (lane, shard, is_whole_queue, customer_id, message_id, error,
        attempts, since, last_attempt_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s, now(), now())
    ON CONFLICT (lane, shard, is_whole_queue, customer_id) DO UPDATE
    SET message_id = excluded.message_id, error = excluded.error, attempts = excluded.attempts,
        last_attempt_at = excluded.last_attempt_at
"""

_DELETE: Final = """
    DELETE FROM stalled_queues
    WHERE lane = %s AND shard = %s AND is_whole_queue = %s AND customer_id = %s
"""


def published(connection: Connection[Any]) -> list[Stall]:
    """Return the stalls in the table, those of all workers, the oldest first."""
    return [
        Stall(Lane(lane), shard, customer_id, message_id, error, attempts, is_published=True)
        for lane, shard, customer_id, message_id, error, attempts in connection.execute(
            _READ, [_ROWS_LIMIT]
        )
    ]


def _key(place: _Place) -> tuple[int, int, bool, Id]:
    lane, shard, customer_id = place
    return int(lane), shard, customer_id is None, customer_id or UNROUTED.customer_id


def _row(stall: Stall) -> tuple[Any, ...]:
    return *_key(stall.place), stall.message_id, stall.error, stall.attempts
