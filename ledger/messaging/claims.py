"""Claims of messages: a batch takes the oldest of its queues, and shares itself among platforms.

Connections are psycopg's, inside a database transaction of the caller, and come from
`batch_connections.batch_engine`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from json import loads
from typing import Any, Final, NamedTuple

from psycopg import Connection
from pydantic_core import from_json

from cardledger.ledger.messaging.inbox import CANARIES_FROM, Lane, Message
from cardledger.ledger.messaging.inbox_key import InboxKey
from cardledger.ledger.messaging.queue_positions import QueuePositions
from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import RESERVED_SOURCES

_QUEUES_PER_BATCH: Final = 4  # A batch takes at most this part of its messages from one queue.


_FAIR_DEPTH: Final = 8
"""Batches of messages in which a claim looks for those of other platforms."""


class Claim(NamedTuple):
    """Messages to be decided, and the queues they came from that may hold more.

    `forged` were not accepted by a process of this installation: their MAC is wrong or missing.
    """

    messages: list[Message]
    unfinished: list[int]
    forged: Sequence[Message]
    has_verified: bool  # A MAC: the key is that of this installation.


_LOCK_QUEUES: Final = """
    SELECT shard FROM inbox_shards WHERE lane = %s AND shard = ANY(%s) ORDER BY shard FOR UPDATE
"""
_LOCK_FREE_QUEUES: Final = f"{_LOCK_QUEUES} SKIP LOCKED"

# Queue by queue, so that every row that is read is also claimed.
_CLAIM: Final = """
    SELECT c.* FROM (
        SELECT i.shard, i.id, i.customer_id, i.platform_id, i.source, i.reference, i.body::text,
            i.body_hash, i.reply_to, i.received_at, i.mac
        FROM (
            SELECT s.shard, s.position FROM unnest(%s, %s) AS s (shard, position)
            CROSS JOIN LATERAL (
                SELECT id FROM inbox
                WHERE lane = %s AND shard = s.shard AND id >= s.position
                    AND customer_id <> ALL(%s)
                ORDER BY id LIMIT 1
            ) oldest
            ORDER BY oldest.id
        ) q
        CROSS JOIN LATERAL (
            SELECT * FROM inbox
            WHERE lane = %s AND shard = q.shard AND id >= q.position AND customer_id <> ALL(%s)
            ORDER BY id LIMIT %s
        ) i
        LIMIT %s
    ) c ORDER BY c.id
"""


# The first of each queue, then the first of each platform, the second of each, and so on. Of each
# platform they are its oldest, so the messages of a cardholder stay in their order.
_CLAIM_FAIRLY: Final = """
    SELECT i.shard, i.id, i.customer_id, i.platform_id, i.source, i.reference, i.body::text,
        i.body_hash, i.reply_to, i.received_at, i.mac
    FROM (
        SELECT c.shard, c.id FROM (
            SELECT s.shard, w.id,
                row_number() OVER (PARTITION BY s.shard ORDER BY w.id) AS place_in_queue,
                row_number() OVER (PARTITION BY w.platform_id ORDER BY w.id) AS place
            FROM unnest(%s, %s) AS s (shard, position)
            CROSS JOIN LATERAL (
                SELECT id, platform_id FROM inbox
                WHERE lane = %s AND shard = s.shard AND id >= s.position AND customer_id <> ALL(%s)
                ORDER BY id LIMIT %s
            ) w
        ) c
        ORDER BY c.place_in_queue > 1, c.place, c.id LIMIT %s
    ) q
    JOIN inbox i ON i.lane = %s AND i.shard = q.shard AND i.id = q.id
    ORDER BY i.id
"""

_ARE_SEVERAL: Final = """
    SELECT EXISTS (
        SELECT FROM unnest(%s, %s) AS s (shard, position)
        CROSS JOIN LATERAL (
            SELECT platform_id FROM inbox
            WHERE lane = %s AND shard = s.shard AND id >= s.position
            ORDER BY id LIMIT %s
        ) w
        WHERE w.platform_id <> %s
    )
"""


def claim(  # noqa: PLR0913 - what it leaves out, by name
    connection: Connection[Any],
    lane: Lane,
    shards: Sequence[int],
    limit: int,
    key: InboxKey,
    *,
    without: Sequence[Id] = (),
    positions: QueuePositions | None = None,
) -> Claim:
    """Lock queues until the commit and return their oldest messages, at most `limit`.

    A queue that another worker drains is left to it, and named among the unfinished: its messages
    are decided in order. When all are, waits for one as long as the connection may wait for a lock.
    Messages of the cardholders `without` stay where they are; those before the `positions` of their
    queues, which it advances, are not read. Each row is verified with `key`.
    Shape: by age; from the queues with the oldest messages first, at most a share of each. While
    messages of several platforms wait for more than one batch, the oldest of each platform, as many
    of each as there are.
    Raises: psycopg.errors.LockNotAvailable.
    """
    positions = positions or QueuePositions()
    begin = positions.of(lane, shards)
    is_shared = positions.sharing.is_shared(lane)
    # The oldest messages of all queues together would take reading a batch from each.
    share = max(-(-limit // len(shards)), limit // _QUEUES_PER_BATCH)
    depth = max(limit * _FAIR_DEPTH // len(shards), 1)
    left_out = pg_arrays.uuids(without)

    def attempt(statement: str, queues: Sequence[int]) -> tuple[list[int], list[Any]]:
        wanted = pg_arrays.integers(queues)
        first = pg_arrays.uuids([begin[shard] for shard in queues])
        claim_of = [wanted, first, lane, left_out, lane, left_out, share, limit]
        fair_claim_of = [wanted, first, lane, left_out, depth, limit, lane]
        with connection.pipeline():
            locks = connection.execute(statement, [lane, wanted])
            cursor = connection.cursor(binary=True).execute(
                *((_CLAIM_FAIRLY, fair_claim_of) if is_shared else (_CLAIM, claim_of))
            )
        return [shard for (shard,) in locks.fetchall()], cursor.fetchall()

    owned, rows = attempt(_LOCK_FREE_QUEUES, shards)
    if not owned:
        owned, rows = attempt(_LOCK_QUEUES, shards)
    elif len(owned) < len(shards):
        # What was read of the others' queues is theirs to decide.
        owned, rows = attempt(_LOCK_FREE_QUEUES, owned)
    held = sorted({*shards} - {*owned})
    messages, forged, has_verified = _verify(connection, lane, rows, key)
    if not without and not forged:  # Whose messages wait before those that were claimed.
        positions.advance(lane, begin, messages)
    most = depth if is_shared else share
    taken = Counter([row[0] for row in rows])
    long = [shard for shard, count in taken.items() if count == most]
    if limit > 1 and (len(rows) == limit or long):
        _look(connection, lane, positions, owned, platform_id=rows[0][3], depth=depth)
    unfinished = list(shards) if len(rows) == limit else long + held
    return Claim(messages, unfinished, forged, has_verified)


_LOOK: Final = """
    SELECT i.shard, i.id, i.customer_id, i.platform_id, i.source, i.reference, i.body::text,
        i.body_hash, i.reply_to, i.received_at, i.mac
    FROM unnest(%s, %s) AS s (shard, position)
    CROSS JOIN LATERAL (
        SELECT * FROM inbox WHERE lane = %s AND shard = s.shard AND id > s.position
            AND customer_id <> ALL(%s)
        ORDER BY id LIMIT %s
    ) i
    ORDER BY i.shard, i.id
"""


def look_for_verified(  # noqa: PLR0913 - as `claim`
    connection: Connection[Any],
    lane: Lane,
    after: Mapping[int, Id],
    limit: int,
    key: InboxKey,
    *,
    without: Sequence[Id] = (),
) -> tuple[bool, dict[int, Id]]:
    """Return whether a row behind the positions `after` of queues proves the key right.

    At most `limit` rows are read, and besides where this has ended in each queue that may have
    more: to be called with these positions again. `without` is as for `claim`.
    """
    share = max(limit // len(after), 1)
    shards, positions = pg_arrays.integers([*after]), pg_arrays.uuids([*after.values()])
    arguments = [shards, positions, lane, pg_arrays.uuids(without), share]
    rows = connection.cursor(binary=True).execute(_LOOK, arguments).fetchall()
    is_proved = any(map(_is_from_outside, compress(rows, key.verify_all(lane, rows))))
    counts = Counter([row[0] for row in rows])
    ends = {row[0]: row[1] for row in rows}
    return is_proved, {shard: end for shard, end in ends.items() if counts[shard] == share}


def _verify(
    connection: Connection[Any], lane: Lane, rows: list[Any], key: InboxKey
) -> tuple[list[Message], Sequence[Message], bool]:
    """Return the messages of `rows`, those that are forged, and whether the key is proved right.

    Messages of the ledger itself prove nothing: a worker with a wrong key signs its own with it.
    """
    verified = key.verify_all(lane, rows)
    if all(verified):
        return _messages(lane, rows), (), any(map(_is_from_outside, rows))
    believed = verified
    if not _macs_are_required(connection):
        believed = [
            is_verified or row[-1] is None for is_verified, row in zip(verified, rows, strict=True)
        ]
    forged = [row for row, is_believed in zip(rows, believed, strict=True) if not is_believed]
    is_proved = any(map(_is_from_outside, compress(rows, verified)))
    return _messages(lane, list(compress(rows, believed))), _messages(lane, forged), is_proved


def _is_from_outside(row: Any) -> bool:  # noqa: ANN401 - of any types
    return row[4] not in RESERVED_SOURCES


def _macs_are_required(connection: Connection[Any]) -> bool:
    """Return whether every release that may run writes MACs; read only where one is missing."""
    rows = connection.execute("SELECT is_required FROM inbox_macs").fetchall()
    return rows != [(False,)]


def _look(  # noqa: PLR0913 - what it reads, by name
    connection: Connection[Any],
    lane: Lane,
    positions: QueuePositions,
    queues: Sequence[int],
    *,
    platform_id: Any,  # noqa: ANN401 - as the claim has read it
    depth: int,
) -> None:
    """Look whether messages of others than a platform are among the oldest `depth` of `queues`.

    Also in queues that the claim has taken nothing from: others may wait there alone.
    """
    if not positions.sharing.is_look_due(lane):
        return
    begin = positions.of(lane, queues)
    several = connection.execute(
        _ARE_SEVERAL,
        [
            pg_arrays.integers(queues),
            pg_arrays.uuids([begin[shard] for shard in queues]),
            lane,
            depth,
            platform_id,
        ],
    ).fetchone()
    positions.sharing.note(lane, several=bool(several and several[0]))


def _messages(lane: Lane, rows: list[Any]) -> list[Message]:
    return [
        Message(
            lane,
            shard,
            key,
            customer_id,
            platform_id,
            source,
            reference,
            _parsed(body),
            body_hash,
            reply_to,
            received_at,
        )
        for (
            shard,
            key,
            customer_id,
            platform_id,
            source,
            reference,
            body,
            body_hash,
            reply_to,
            received_at,
            _,
        ) in rows
    ]


def _parsed(body: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return from_json(body)
    except ValueError:
        pass  # Cheaper than `suppress`: this is for every message.
    try:
        return loads(body)  # Slower, but accepts halves of surrogate pairs.
    except (ValueError, RecursionError):
        # PostgreSQL accepts numbers and depths that Python does not. A string is rejected when it
        # is decided; an error here would stop the whole queue.
        return body


def remove(connection: Connection[Any], messages: Sequence[Message]) -> None:
    """Delete decided messages, which are of one lane, from their queues."""
    # Not a join with the keys: the planner expects an empty inbox, which it mostly is, and would
    # compare every message with every key.
    connection.execute(
        "DELETE FROM inbox WHERE lane = %s AND shard = ANY(%s) AND id = ANY(%s)",
        [
            messages[0].lane,
            pg_arrays.integers(sorted({message.shard for message in messages})),
            pg_arrays.uuids([message.id for message in messages]),
        ],
    )


_WAITING: Final = """
    SELECT s.lane, s.shard, i.id FROM inbox_shards s
    CROSS JOIN LATERAL (
        SELECT id FROM inbox WHERE lane = s.lane AND shard = s.shard ORDER BY id LIMIT 1
    ) i
    ORDER BY 1, 2
"""


def waiting(connection: Connection[Any]) -> list[tuple[Lane, int, Id]]:
    """Return the queues that have messages, each with the oldest, read from its beginning."""
    return [(Lane(lane), shard, key) for lane, shard, key in connection.execute(_WAITING)]


_WITH_EVENTS: Final = """
    SELECT s.shard FROM unnest(%s) AS s (shard) WHERE EXISTS (
        SELECT FROM inbox i WHERE i.lane = %s AND i.shard = s.shard AND i.customer_id < %s)
"""


def with_events(connection: Connection[Any], lane: Lane, shards: Sequence[int]) -> set[int]:
    """Return those of `shards` in which an event waits, also one that another worker claims."""
    arguments = [pg_arrays.integers(shards), lane, CANARIES_FROM]
    return {shard for (shard,) in connection.execute(_WITH_EVENTS, arguments)}
