"""Stalls: cardholders whose messages fail by an internal error, and queues in which all of them do.

A failure that a message's own data does not explain is internal: a revoked privilege, a column of
another release, a defect. It never rejects a message (docs/decisions/0029). The messages of the
cardholder wait, or the whole queue stops when different cardholders fail with the same error and
none succeeds; both are tried again, with a growing delay, and go on by themselves after the repair.

Each worker keeps its own list of stalls. The table `stalled_queues` shows them to operators, and to
workers that are started later.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any, Final

import structlog
from psycopg import Connection

from cardledger.ledger.engine.failures import FailedError, log_ids
from cardledger.ledger.engine.parsing import UnknownTypeError
from cardledger.ledger.messaging.inbox import UNROUTED, Lane, Message
from cardledger.schema.ids import Id

SAMPLE: Final = 4
"""Cardholders whose messages are tried before their queues stop."""

HELD_LIMIT: Final = 1_000
"""Cardholders that wait alone in one lane; when more fail, their queues stop."""

LAPSE_S: Final = 300.0
"""How long a queue stays stopped in which only a few cardholders wait, who have all failed."""

_FIRST_DELAY_S: Final = 0.25
_DELAY_LIMIT_S: Final = 5.0
_RETRIES_EVERY_S: Final = 0.1  # Of different cardholders of a lane.
# What `describe` returns: of an error of PostgreSQL its SQLSTATE, its text and where it was raised;
_OF_POSTGRESQL: Final = re.compile(r"^([0-9A-Z]{5}: .*) \(\w+\.py:\d+\)$")
# of any other its type, its text, which may name a row, and where it was raised.
_OF_OTHERS: Final = re.compile(r"^(\w+): .*( \(\w+\.py:\d+\))$")
_log = structlog.get_logger()


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
    others_succeed: bool = False  # Since it failed first.
    since: float = 0.0  # By the monotonic clock.
    is_adopted: bool = False  # From another worker; not tried here so far.

    @property
    def is_stop(self) -> bool:
        """Whether the whole queue has stopped."""
        return self.customer_id is None

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
        self._next_retries: Final[dict[Lane, float]] = {}
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
        now = self._clock()
        with self._lock:
            if self._next_retries.get(lane, 0.0) > now:
                return None
            first = min(self._held(lane, shards), key=lambda stall: stall.retry_at, default=None)
        return first if first and first.retry_at <= now else None

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
            held = sum(s.lane is message.lane and not s.is_stop for s in self._stalls.values())
            if place not in self._stalls and held >= HELD_LIMIT:
                return False
        # Longer than a queue waits, so that it tries other cardholders first.
        self._add(place, message.id, failure.error, delay_s=2 * _FIRST_DELAY_S, message=message)
        return True

    def hold_again(self, stall: Stall, error: str) -> None:
        """Let the cardholder of `stall`, which was tried again, wait longer.

        A batch was decided in vain: the next cardholder is tried a little later.
        """
        self._next_retries[stall.lane] = self._clock() + _RETRIES_EVERY_S
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
        # Types of a newer release are of some cardholders, however many.
        failed = [
            (each.message, _cause(each.error))
            for each in failures
            if each.message and not isinstance(each.__cause__, UnknownTypeError)
        ]
        cardholders: dict[tuple[Lane, str], set[Id]] = defaultdict(set)
        for message, cause in failed:
            cardholders[message.lane, cause].add(message.customer_id)
        with self._lock:
            for lane, customer_id, cause in self._unsuccessful():
                cardholders[lane, cause].add(customer_id)
        return any(len(cardholders[message.lane, cause]) > 1 for message, cause in failed)

    def _unsuccessful(self) -> Iterator[tuple[Lane, Id, str]]:
        """Yield the cardholders who failed here, since when none of their lane has succeeded."""
        for stall in self._stalls.values():
            if stall.customer_id and not (stall.others_succeed or stall.is_adopted):
                yield stall.lane, stall.customer_id, _cause(stall.error)

    def note_success(self, lane: Lane) -> None:
        """Remember that an event of `lane` was decided beside those that wait.

        So its queues in which events fail go on, and who waits in them is tried again.
        """
        with self._lock:
            mine = [stall for stall in self._stalls.values() if stall.lane is lane]
            stopped = {stall.shard for stall in mine if stall.is_stop and stall.message_id}
            self._remove([(lane, shard, None) for shard in stopped])
            for stall in mine:
                stall.others_succeed = True
                if stall.shard in stopped:
                    stall.retry_at = 0.0

    def note_readable(self, lane: Lane, shards: Iterable[int]) -> None:
        """Let those of `shards` go on that had stopped because they could not be read."""
        with self._lock:
            places = [(lane, shard, None) for shard in shards]
            stops = [self._stalls[place] for place in places if place in self._stalls]
            self._remove([stop.place for stop in stops if stop.message_id is None])

    def lapse(self, lane: Lane, shards: Iterable[int]) -> None:
        """Let those of `shards` go on that stopped long ago for a few cardholders alone.

        Otherwise an installation that gets no events while it is not ready would stay so, because
        of two cardholders. When more have failed alike, and none has succeeded, it is.
        """
        limit = self._clock() - LAPSE_S
        with self._lock:
            alike = Counter((of, cause) for of, _, cause in self._unsuccessful() if of is lane)
            if max(alike.values(), default=0) >= SAMPLE:
                return
            places = [(lane, shard, None) for shard in shards]
            stops = [self._stalls[place] for place in places if place in self._stalls]
            self._remove([stop.place for stop in stops if stop.since < limit])

    def resume(self, lane: Lane, shards: Iterable[int]) -> None:
        """Let those of `shards` go on that have stopped: no event waits in them any more."""
        with self._lock:
            self._remove([(lane, shard, None) for shard in shards])

    def postpone(self, stall: Stall) -> None:
        """Let others who wait be tried before the cardholder of `stall`, who is locked."""
        with self._lock:
            stall.retry_at = self._clock() + 2 * _FIRST_DELAY_S

    def end(self, stall: Stall) -> None:
        """Let the cardholder of `stall` go on."""
        with self._lock:
            self._remove([stall.place])

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
            stall = known or Stall(*place, message_id, error, since=self._clock())
            stall.message_id, stall.error, stall.is_adopted = message_id, error, False
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
                    stall.is_adopted, stall.since = True, self._clock()
                    self._stalls[place] = stall
            for place, stall in self._stalls.items():
                if stall.is_published and place not in table:
                    stall.retry_at = 0.0  # Another worker has decided its messages.
            self._remove([place for place in self._stalls if place[:2] not in queues])


def _cause(error: str) -> str:
    """Return what two failures of the same cause have in common."""
    # A pipeline raises an error of PostgreSQL at whichever statement comes next.
    of_postgresql = _OF_POSTGRESQL.fullmatch(error)
    return of_postgresql[1] if of_postgresql else _OF_OTHERS.sub(r"\1\2", error)


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
_ROWS_LIMIT: Final = 2 * HELD_LIMIT + 200

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
