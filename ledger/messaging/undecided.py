"""Since when nothing is decided, as the tables know it: for queues that do not move.

The first look at an installation may come hours after its workers have stopped.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncConnection, Connection

from cardledger.ledger.messaging.canaries import Queue
from cardledger.ledger.messaging.inbox import CANARIES_FROM

_TAIL_PAGES: Final = 50  # Each connection of a worker fills a page of its own.

# One row of each queue by the primary key. Outcomes have no index by time: they are append-only, so
# the newest are at the physical end.
_READ: Final = f"""
    SELECT clock_timestamp(),
        (SELECT min(oldest.received_at)
        FROM unnest(%s::int[], %s::int[]) AS q (lane, shard) CROSS JOIN LATERAL (
            SELECT received_at FROM inbox
            WHERE lane = q.lane AND shard = q.shard AND customer_id < %s
            ORDER BY id LIMIT 1
        ) oldest),
        (SELECT max(recorded_at) FROM outcomes WHERE ctid >= (
            SELECT CAST('(' || greatest(
                pg_relation_size('outcomes'::regclass) / current_setting('block_size')::bigint
                    - {_TAIL_PAGES}, 0
            ) || ',0)' AS tid)
        ))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """What waited at a time, by PostgreSQL's clock.

    `oldest_received_at`: of the messages that wait in the queues, canaries left out; None: there
    are none. `last_decided_at`: of all queues, rejections and duplicates left out; None: never.
    """

    at: datetime
    oldest_received_at: datetime | None
    last_decided_at: datetime | None


async def read_async(connection: AsyncConnection[Any], queues: Collection[Queue]) -> Undecided:
    """Return what waits in `queues`, and when the last message was decided; one statement."""
    return _undecided(await (await connection.execute(_READ, _arguments(queues))).fetchone())


def read(connection: Connection[Any], queues: Collection[Queue]) -> Undecided:
    """Do as `read_async` does, for a thread."""
    return _undecided(connection.execute(_READ, _arguments(queues)).fetchone())


def _arguments(queues: Collection[Queue]) -> list[Any]:
    return [[int(lane) for lane, _ in queues], [shard for _, shard in queues], CANARIES_FROM]


def _undecided(row: tuple[Any, ...] | None) -> Undecided:
    assert row is not None, "a SELECT without FROM has a row"
    at, oldest_received_at, last_decided_at = row
    return Undecided(at=at, oldest_received_at=oldest_received_at, last_decided_at=last_decided_at)
