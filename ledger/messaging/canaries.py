"""Canaries: messages that show whether a queue moves, without an effect of their own.

The engine takes a canary out of its queue like any message and leaves nothing behind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncConnection, Connection

from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.inbox import CANARY_CUSTOMERS, Lane, Message
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id

Queue = tuple[Lane, int]

SOURCE: Final = "canary"
INTERVAL_S: Final = 1.5  # Between two canaries of a queue.
STUCK_AFTER_S: Final = 2.5  # A worker sweeps every half second, and a batch takes a fraction of it.

_NAMED: Final = 5  # Queues that a text names.


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The state of the queues in PostgreSQL at one moment."""

    at: datetime  # By PostgreSQL's clock.
    heads: Mapping[Queue, Id | None]  # The oldest message of every queue.
    waiting: frozenset[Id]  # Of the canaries that were asked for.


@dataclass(slots=True)
class _QueueState:
    head: Id | None
    unmoved_since: float
    canary: Id | None = None
    canary_since: float = field(default=float("-inf"))


class QueueWatch:
    """Decides which queues need a canary, and which are stuck.

    Times are seconds of a monotonic clock, which the caller reads.
    """

    def __init__(self, *, probes_empty: bool = True) -> None:
        """Know no queue yet; without `probes_empty`, a queue without messages needs no canary."""
        self._probes_empty: Final = probes_empty
        self._queues: Final[dict[Queue, _QueueState]] = {}
        self._observed_at = self._moved_at = float("-inf")

    @property
    def outstanding(self) -> list[tuple[Queue, Id]]:
        """The canaries that were not decided at the last observation."""
        return [(queue, state.canary) for queue, state in self._queues.items() if state.canary]

    def observe(self, observed: Observation, now: float) -> None:
        """Take note of what was `observed` at `now`."""
        for queue, head in observed.heads.items():
            state = self._queues.setdefault(queue, _QueueState(head, now))
            if state.head not in {None, head}:
                self._moved_at = self._observed_at
            if state.head != head or head is None:
                state.head, state.unmoved_since = head, now
            if state.canary is not None and state.canary not in observed.waiting:
                state.canary, self._moved_at = None, self._observed_at
        self._observed_at = now

    def due(self, now: float) -> list[Queue]:
        """Return the queues that need a canary: without one, and without traffic.

        A queue whose oldest message stays the same may wait for one cardholder only; the canary
        behind that message tells.
        """
        return [
            queue
            for queue, state in self._queues.items()
            if state.canary is None
            and now - state.canary_since >= INTERVAL_S
            and (self._probes_empty if state.head is None else now > state.unmoved_since)
        ]

    def sent(self, messages: Sequence[Message], now: float) -> None:
        """Take note of canaries that are in the inbox."""
        for message in messages:
            state = self._queues[message.lane, message.shard]
            state.canary, state.canary_since = message.id, now

    def has_moved(self, now: float) -> bool:
        """Return whether a message, of any queue, was decided in the last seconds.

        That is, after an observation in these seconds, and before another one.
        """
        return now - self._moved_at < STUCK_AFTER_S

    def stuck(self, now: float) -> dict[Queue, float]:
        """Return for how many seconds each queue that is stuck has not moved."""
        return {
            queue: now - state.unmoved_since
            for queue, state in self._queues.items()
            if state.canary is not None
            and now - max(state.canary_since, state.unmoved_since) >= STUCK_AFTER_S
        }


def stuck_in_words(stuck: Mapping[Queue, float], *, for_s: float = 0.0) -> str:
    """Return which queues are `stuck`, by name for the first of them, and for how long.

    `for_s` seconds, when it is known that they were stuck before they were watched.
    """
    names = ", ".join(f"{lane.name.lower()}/{shard}" for lane, shard in sorted(stuck)[:_NAMED])
    more = f" and {len(stuck) - _NAMED} more" if len(stuck) > _NAMED else ""
    seconds = max(for_s, *stuck.values())
    return f"no message was decided for {seconds:.0f} s in queues {names}{more}"


def canary(queue: Queue, at: datetime) -> Message:
    """Return a canary for `queue`."""
    lane, shard = queue
    key = new_id()
    return Message(
        lane=lane,
        shard=shard,
        id=key,
        customer_id=CANARY_CUSTOMERS[shard],
        platform_id=inbox.UNROUTED.platform_id,
        source=SOURCE,
        reference=str(key),
        body={"type": "CANARY"},
        body_hash=b"",
        reply_to=None,
        received_at=at,
    )


_OBSERVE: Final = """
    SELECT s.lane, s.shard, clock_timestamp(),
        (SELECT id FROM inbox WHERE (lane, shard) = (s.lane, s.shard) ORDER BY id LIMIT 1),
        (SELECT id FROM inbox WHERE (lane, shard, id) = (s.lane, s.shard, c.id))
    FROM inbox_shards s
    LEFT JOIN unnest(%s::int[], %s::int[], %s::uuid[]) AS c (lane, shard, id) USING (lane, shard)
"""


async def observe_async(
    connection: AsyncConnection[Any], outstanding: Sequence[tuple[Queue, Id]]
) -> Observation:
    """Read the head of every queue, and which of the `outstanding` canaries wait; one statement."""
    cursor = await connection.execute(_OBSERVE, _columns(outstanding))
    return _observation(await cursor.fetchall())


def observe(connection: Connection[Any], outstanding: Sequence[tuple[Queue, Id]]) -> Observation:
    """Do as `observe_async` does, for a thread."""
    return _observation(connection.execute(_OBSERVE, _columns(outstanding)).fetchall())


def _columns(outstanding: Sequence[tuple[Queue, Id]]) -> list[list[Any]]:
    return [
        [int(lane) for (lane, _), _ in outstanding],
        [shard for (_, shard), _ in outstanding],
        [key for _, key in outstanding],
    ]


def _observation(rows: Sequence[tuple[Any, ...]]) -> Observation:
    return Observation(
        at=max(row[2] for row in rows),
        heads={(Lane(lane), shard): head for lane, shard, _, head, _ in rows},
        waiting=frozenset(row[4] for row in rows if row[4] is not None),
    )
