"""Events that programs enqueue in database transactions of their own, until a worker moves them.

The function `enqueue` of the database writes them in the order of their positions. One worker at a
time moves the oldest to the inbox or to the rejections, in one database transaction: a trigger
refuses to delete an event that is in neither. Connections are psycopg's, inside a database
transaction of the caller.
Source: docs/decisions/0057-events-in-a-database-transaction.md
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection, Connection

from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id

CHANNEL: Final = "cardledger_enqueued"
"""The channel that is notified by the first event after all others were moved."""

COUNT_LIMIT: Final = 10_000
"""The highest exact count of events that wait."""

_LOCK: Final = 0x656E7175  # Any number: who holds it moves events.


class EnqueuedEvent(NamedTuple):
    """A row of `enqueued_events`; `event` is the text of its JSON."""

    position: int
    id: Id
    lane: Lane
    source: str
    reference: str
    event: str
    enqueued_at: datetime


class Turn(NamedTuple):
    """The right of a database transaction to move events, at a time of PostgreSQL's clock.

    All database transactions before `oldest_running` have ended, and none from `next_id` on had
    begun. `last_position`, which is read after that, is the highest of any event.
    """

    at: datetime
    oldest_running: int
    next_id: int
    last_position: int


# Installations in other schemas of the database have turns of their own.
_TAKE_TURN: Final = """
    SELECT clock_timestamp(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
        (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM enqueued_events_position_seq)
    WHERE pg_try_advisory_xact_lock(%s, hashtext(current_schema()))
"""


def take_turn(connection: Connection[Any]) -> Turn | None:
    """Return the turn of this database transaction, until its end; None: another one has it."""
    row = connection.execute(_TAKE_TURN, [_LOCK]).fetchone()
    return None if row is None else Turn(*row)


class Beginning:
    """The position at which a mover begins to read: no event can be before it any more.

    Deleted rows stay in the index until no open snapshot can see them. While one is open for long,
    a backup for example, each look from the first position would walk over all of them.
    """

    def __init__(self) -> None:
        self.position = 0
        self._last_position = 0  # At the look before.
        self._mark = 0  # Positions up to it are settled,
        self._settled_by: int | None = None  # once all database transactions before this one end.
        self._is_settled = False

    def look(self, turn: Turn) -> None:
        """Note a look that begins now: it sees all events up to a mark that is settled.

        A database transaction gets its id before its first position, so all that may add an event
        up to the last position of the look before have an id by now.
        """
        settled_by = self._settled_by
        self._is_settled = settled_by is not None and turn.oldest_running >= settled_by
        if settled_by is None:
            self._mark, self._settled_by = self._last_position, turn.next_id
        self._last_position = turn.last_position

    def seen(self, events: Sequence[EnqueuedEvent], *, are_all: bool) -> None:
        """Note the `events` of the look, which are moved; `are_all`: it found no more.

        Those of the live lane come first: when one of the other lane is there, these are all.
        """
        are_all = are_all or (events[-1].lane is Lane.BULK and events[-1].position >= self._mark)
        if self._is_settled and are_all:
            self.position, self._settled_by = self._mark + 1, None


_OLDEST: Final = """
    SELECT e.* FROM generate_series(0, 1) AS l (lane)
    CROSS JOIN LATERAL (
        SELECT position, id, lane, source, reference, event::text, enqueued_at FROM enqueued_events
        WHERE lane = l.lane AND position >= %(begin)s AND position <> ALL(%(without)s)
        ORDER BY position LIMIT %(limit)s
    ) e
    ORDER BY e.lane, e.position LIMIT %(limit)s
"""


def oldest(
    connection: Connection[Any],
    limit: int,
    *,
    begin: int = 0,
    without: Sequence[int] = (),
) -> list[EnqueuedEvent]:
    """Return the oldest events from `begin` on in their order, but not those at `without`.

    At most `limit`, those of the live lane first: a file does not delay them. Read them in their
    turn: what another transaction has moved is gone then.
    """
    values = {"begin": begin, "without": pg_arrays.bigints(without), "limit": limit}
    rows = connection.execute(_OLDEST, values)
    return [
        EnqueuedEvent(position, key, Lane(lane), *others) for position, key, lane, *others in rows
    ]


_REMOVE: Final = "DELETE FROM enqueued_events WHERE lane IN (0, 1) AND position = ANY(%s)"


def remove(connection: Connection[Any], moved: Sequence[EnqueuedEvent]) -> None:
    """Delete events that are now in the inbox or in the rejections.

    Raises: psycopg.errors.InsufficientPrivilege when one is in neither.
    """
    positions = pg_arrays.bigints([event.position for event in moved])
    connection.execute(_REMOVE, [positions])


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How many events wait, at most `COUNT_LIMIT`, and the age of the oldest, if any."""

    count: int
    age_s: float | None


WAITING: Final = """
    SELECT (SELECT count(*) FROM (SELECT FROM enqueued_events LIMIT %(limit)s) counted),
        (SELECT extract(epoch FROM clock_timestamp() - min(oldest.enqueued_at))::float8
        FROM generate_series(0, 1) AS l (lane) CROSS JOIN LATERAL (
            SELECT enqueued_at FROM enqueued_events e
            WHERE e.lane = l.lane ORDER BY e.position LIMIT 1
        ) oldest)
"""
"""One row: the fields of `Waiting`; its count is one above the limit when there are more."""

_LIMIT: Final = {"limit": COUNT_LIMIT + 1}


def waiting(connection: Connection[Any]) -> Waiting:
    """Return what waits to be moved."""
    return _waiting(connection.execute(WAITING, _LIMIT).fetchone())


async def waiting_async(connection: AsyncConnection[Any]) -> Waiting:
    """Do as `waiting` does, for an event loop."""
    return _waiting(await (await connection.execute(WAITING, _LIMIT)).fetchone())


def _waiting(row: tuple[Any, ...] | None) -> Waiting:
    assert row is not None, "a SELECT without FROM has a row"
    count, age_s = row
    return Waiting(count=min(count, COUNT_LIMIT), age_s=age_s)
