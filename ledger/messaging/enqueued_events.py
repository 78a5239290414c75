"""Events that programs enqueue in database transactions of their own, until a worker moves them.

The function `enqueue` of the database writes them in the order of their positions. One worker at a
time moves the oldest to the inbox or to the rejections, in one database transaction: a trigger
refuses to delete an event that is in neither. Connections are psycopg's, inside a database
transaction of the caller.
Source: docs/decisions/0057-events-in-a-database-transaction.md
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection, Connection

from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id

CHANNEL: Final = "cardledger_enqueued"
"""The channel that is notified by the first event after all others were moved."""

COUNT_LIMIT: Final = 10_000
"""The highest exact count of events that wait."""


class EnqueuedEvent(NamedTuple):
    """A row of `enqueued_events`; `event` is the text of its JSON."""

    position: int
    id: Id
    lane: Lane
    source: str
    reference: str
    event: str
    enqueued_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where movers begin to read: no event can be before `begins_at` any more.

    Deleted rows stay in the index until no open snapshot can see them. While one is open for long,
    a backup for example, each look from the first position would walk over all of them. The row is
    in the database, so that a restored or promoted server has one that belongs to its events.
    """

    begins_at: int = 0
    last_position: int = 0  # At the update before.
    mark: int = 0  # Positions up to it are settled,
    settled_by: int | None = None  # once all database transactions before this one have ended.


class Turn(NamedTuple):
    """The right of a database transaction to move events, at a time of PostgreSQL's clock.

    All database transactions with an id before `oldest_running` have ended. Any that had an id when
    the turn began has one before `own_id`. `last_position`, read after both, is the highest of any
    event.
    """

    at: datetime
    oldest_running: int
    own_id: int
    last_position: int
    progress: Progress
    updated_at: datetime


# A position is drawn before its event is written, so another transaction's shows here at once.
_IS_IDLE: Final = """
    SELECT settled_by IS NULL AND last_position < begins_at AND last_position = (
        SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM enqueued_events_position_seq)
    FROM enqueued_events_progress
"""


def is_idle(connection: Connection[Any]) -> bool:
    """Return whether no event was enqueued since all were moved: a turn would find nothing.

    Reading takes no transaction id, so nothing is written and no commit waits for a flush.
    """
    row = connection.execute(_IS_IDLE).fetchone()
    return row is not None and bool(row[0])


# A row, because any login may take any advisory lock; only workers may update it.
_LOCK: Final = """
    SELECT begins_at, last_position, mark, settled_by, updated_at FROM enqueued_events_progress
    FOR UPDATE SKIP LOCKED
"""
# A statement of its own: its snapshot is later than every update of the row. Not the end of the
# snapshot (xmax): it is the id after the last transaction that has ended, and later ids may run.
_SNAPSHOT: Final = """
    SELECT clock_timestamp(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
        pg_current_xact_id()::text::bigint,
        (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM enqueued_events_position_seq)
"""


def take_turn(connection: Connection[Any]) -> Turn | None:
    """Return the turn of this database transaction, until its end; None: another one has it."""
    with connection.pipeline():
        locked = connection.execute(_LOCK)
        snapshot = connection.execute(_SNAPSHOT)
    row, now = locked.fetchone(), snapshot.fetchone()
    if row is None or now is None:
        return None
    begins_at, last_position, mark, settled_by, updated_at = row
    progress = Progress(
        begins_at=begins_at, last_position=last_position, mark=mark, settled_by=settled_by
    )
    at, oldest_running, own_id, highest = now
    return Turn(at, oldest_running, own_id, highest, progress, updated_at)


def progressed(turn: Turn, events: Sequence[EnqueuedEvent], *, are_all: bool) -> Progress:
    """Return the progress after a turn that moves `events`, all of them or the oldest.

    A database transaction gets its id before its first position, so all that may add an event up
    to the last position of the update before have an id before that of this turn. Events of the
    live lane come first: when one of the other lane is there, these are all.
    """
    before = turn.progress
    after = replace(before, last_position=turn.last_position)
    if before.settled_by is None:
        if before.last_position < before.begins_at:
            return after
        return replace(after, mark=before.last_position, settled_by=turn.own_id)
    are_all = are_all or (events[-1].lane is Lane.BULK and events[-1].position >= before.mark)
    if are_all and turn.oldest_running >= before.settled_by:
        return replace(after, begins_at=before.mark + 1, settled_by=None)
    return after


UPDATE_AFTER: timedelta = timedelta(seconds=1)
"""How old progress is before it is updated: each update leaves a dead row."""

_UPDATE: Final = """
    UPDATE enqueued_events_progress SET begins_at = %s, last_position = %s, mark = %s,
        settled_by = %s, updated_at = %s
"""


def update_progress(
    connection: Connection[Any], turn: Turn, events: Sequence[EnqueuedEvent], *, are_all: bool
) -> None:
    """Write the progress of `turn`, which moves `events`; seldom, and only where it has changed."""
    if turn.at - turn.updated_at < UPDATE_AFTER:
        return
    after = progressed(turn, events, are_all=are_all)
    if after != turn.progress:
        values = [after.begins_at, after.last_position, after.mark, after.settled_by, turn.at]
        connection.execute(_UPDATE, values)


_BYTES: Final = 1_000_000  # Of events in one turn: parsing them must not take long.

_OLDEST: Final = """
    SELECT e.position, e.id, e.lane, e.source, e.reference, e.event::text, e.enqueued_at, q.found
    FROM (
        SELECT lane, position, count(*) OVER () AS found,
            sum(size) OVER (ORDER BY lane, position) - size AS bytes_before
        FROM (
            SELECT w.* FROM generate_series(0, 1) AS l (lane)
            CROSS JOIN LATERAL (
                SELECT lane, position, size FROM enqueued_events
                WHERE lane = l.lane AND position >= %(begin)s AND position <> ALL(%(without)s)
                ORDER BY position LIMIT %(limit)s
            ) w
            ORDER BY w.lane, w.position LIMIT %(limit)s
        ) o
    ) q
    JOIN enqueued_events e USING (lane, position)
    WHERE q.bytes_before < %(bytes)s ORDER BY e.lane, e.position
"""


class Oldest(NamedTuple):
    """The oldest events in their order, and whether there were no others."""

    events: list[EnqueuedEvent]
    are_all: bool


def oldest(
    connection: Connection[Any],
    limit: int,
    *,
    begin: int = 0,
    without: Sequence[int] = (),
) -> Oldest:
    """Return the oldest events from `begin` on in their order, but not those at `without`.

    At most `limit`, and about a megabyte; those of the live lane first: a file does not delay them.
    Read them in their turn: what another transaction has moved is gone then.
    """
    values = {
        "begin": begin,
        "without": pg_arrays.bigints(without),
        "limit": limit,
        "bytes": _BYTES,
    }
    rows = connection.execute(_OLDEST, values).fetchall()
    events = [
        EnqueuedEvent(position, key, Lane(lane), *others)
        for position, key, lane, *others, _ in rows
    ]
    return Oldest(events, are_all=not rows or len(rows) == rows[0][-1] < limit)


_NEWEST: Final = """
    SELECT w.* FROM generate_series(0, 1) AS l (lane) CROSS JOIN LATERAL (
        SELECT position, id, lane, source, reference, event::text, enqueued_at
        FROM enqueued_events
        WHERE lane = l.lane AND position >= %(begin)s AND position <> ALL(%(without)s)
        ORDER BY position DESC LIMIT 1
    ) w
"""


def newest(
    connection: Connection[Any], *, begin: int = 0, without: Sequence[int] = ()
) -> list[EnqueuedEvent]:
    """Return the newest event of each lane that has one; `begin` and `without` as in `oldest`."""
    values = {"begin": begin, "without": pg_arrays.bigints(without)}
    rows = connection.execute(_NEWEST, values).fetchall()
    return [EnqueuedEvent(at, key, Lane(lane), *others) for at, key, lane, *others in rows]


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
    WITH lanes AS (
        SELECT lane, begins_at FROM enqueued_events_progress, generate_series(0, 1) AS l (lane)
        WHERE is_only
    )
    SELECT (SELECT count(*) FROM (
            SELECT FROM lanes CROSS JOIN LATERAL (
                SELECT FROM enqueued_events e
                WHERE e.lane = lanes.lane AND e.position >= lanes.begins_at LIMIT %(limit)s
            ) w LIMIT %(limit)s
        ) counted),
        (SELECT extract(epoch FROM clock_timestamp() - min(o.enqueued_at))::float8
        FROM lanes CROSS JOIN LATERAL (
            SELECT e.enqueued_at FROM enqueued_events e
            WHERE e.lane = lanes.lane AND e.position >= lanes.begins_at
            ORDER BY e.position LIMIT 1
        ) o)
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
