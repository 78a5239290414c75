"""Decisions and deliveries of one platform in each interval of the last minutes.

They are counted by the time of the decision and of the delivery, whenever the message was accepted:
decisions at the physical end of their table, which is append-only and has no index by time;
rejections and deliveries by the newest ids of the platform. They are read back to one that is older
than the intervals that are asked for, or to a limit on the rows or pages; a caller adds them up
over time, and reads those before it in pieces. Deliveries to an endpoint that is far behind may be
missed beside newer ones of other endpoints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage.ids import first_id_at
from cardledger.schema import location
from cardledger.schema.ids import Id

INTERVAL_S: Final = 10
"""The length of an interval of the rates."""

RATE_ROWS: Final = (2_000, 12_000, 50_000)
"""Rejections or deliveries of a platform that a look at the rates reads, from try to try."""

EARLIER_ROWS: Final = 12_000
"""Those that a look reads besides, of the time that looks before it have not reached."""

RATE_PAGES: Final = (25, 50, 75, 100, 150, 200, 300, 400, 500, 600, 800, 1_000, 1_200)
"""Pages of decisions, of all platforms, that a look at the rates reads: the first that is enough.

A page has some forty rows.
"""

EARLIER_PAGES: Final = 600
"""Those that a look reads besides, of the time that looks before it have not reached."""

RATE_MARGIN: Final = 50
"""Pages that are read before those: each connection of a worker fills a page of its own."""

REJECTED = "REJECTED"
"""The outcome of a rejection, among those of the decisions."""

_WAITED: Final = timedelta(days=1)  # What was accepted earlier is not looked for.
_LAST_ID: Final = Id(b"\xff" * 16)


_BY_INTERVAL: Final = f"""
    SELECT floor(extract(epoch FROM at) / {INTERVAL_S})::bigint AS place, name,
        count(*) AS number
"""  # The columns of a query of rows with a time `at` and a name, grouped by both.

# The table, not the view of a platform, through which its physical end cannot be read. Of others
# nothing is returned. The smallest tail that begins with an older row is enough: a newer row before
# its margin is missed.
_DECISIONS: Final = f"""
    WITH finish AS MATERIALIZED (
        SELECT coalesce(
            CAST(:before AS bigint),
            pg_relation_size('{{tables}}.outcomes'::regclass)
                / CAST(current_setting('block_size') AS bigint)
        ) AS page
    ),
    tails AS MATERIALIZED (
        SELECT greatest(page - size, 0) AS page
        FROM finish, unnest(CAST(:sizes AS int[])) AS size
    ),
    start AS MATERIALIZED (
        SELECT coalesce(enough, most) AS page, enough IS NOT NULL OR most = 0 AS is_whole,
            reached_at
        FROM (
            SELECT max(page) FILTER (WHERE first_at < :since) AS enough, min(page) AS most,
                (array_agg(first_at ORDER BY page))[1] AS reached_at
            FROM (
                SELECT page, (
                    SELECT recorded_at FROM {{tables}}.outcomes
                    WHERE ctid >= CAST('(' || page || ',0)' AS tid)
                        AND ctid < CAST('(' || page + 1 || ',0)' AS tid)
                    LIMIT 1
                ) AS first_at
                FROM tails
            ) probed
        ) compared
    )
    SELECT counted.place, counted.name, counted.number, start.is_whole, start.reached_at,
        greatest(start.page - :margin, 0) AS begin
    FROM start LEFT JOIN (
        {_BY_INTERVAL}
        FROM (
            SELECT recorded_at AS at, outcome AS name FROM {{tables}}.outcomes
            WHERE ctid >= (
                SELECT CAST('(' || greatest(page - :margin, 0) || ',0)' AS tid) FROM start
            )
                AND ctid < (SELECT CAST('(' || page || ',0)' AS tid) FROM finish)
                AND recorded_at >= :since AND platform_id = :platform
        ) recent
        GROUP BY place, name
    ) counted ON true
"""


def _newest_by_interval(recent: str) -> str:
    """Return the statement of how many of `recent` rows there were of each name and interval.

    They are the newest rows of the platform before an id, `:size` of them, with their time `at`;
    `is_whole` says whether older ones need not be read.
    """
    return f"""
        WITH recent AS MATERIALIZED ({recent} ORDER BY id DESC LIMIT :size),
        reached AS (
            SELECT count(*) < :size OR min(at) < :since AS is_whole, min(at) AS reached_at,
                (SELECT id FROM recent OFFSET :size - 1 LIMIT 1) AS begin
            FROM recent
        )
        SELECT counted.place, counted.name, counted.number, reached.is_whole,
            reached.reached_at, reached.begin
        FROM reached LEFT JOIN (
            {_BY_INTERVAL} FROM recent WHERE at >= :since GROUP BY place, name
        ) counted ON true
    """


_REJECTIONS: Final = _newest_by_interval(
    f"""
    SELECT id, recorded_at AS at, '{REJECTED}' AS name FROM rejections
    WHERE platform_id = :platform AND id >= :first AND id < :before
    """
)

_DELIVERED: Final = _newest_by_interval(
    """
    SELECT id, delivered_at AS at, 'DELIVERED' AS name FROM webhook_deliveries
    WHERE platform_id = :platform AND state = 'DELIVERED' AND id >= :first AND id < :before
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How many rows there were in each interval, by name; an interval times `INTERVAL_S` is a time.

    When they are not `is_whole`, there are others before `reached_at`; those are counted `before`
    the `begin` of these. None: it is not known.
    """

    numbers: Mapping[int, Mapping[str, int]]
    is_whole: bool
    reached_at: datetime | None
    begin: int | Id | None


async def decisions(
    connection: AsyncConnection, *, platform_id: Id, since: datetime, before: int | None = None
) -> Counted:
    """Return the decisions `since` a time by outcome, without rejections.

    Those of the pages of the table `before` one, or to its end.
    """
    values = {
        "platform": platform_id,
        "since": since,
        "before": before,
        "sizes": [*RATE_PAGES] if before is None else [EARLIER_PAGES],
        "margin": RATE_MARGIN,
    }
    statement = _DECISIONS.format(tables=await _tables_of(connection))
    return await _counted(connection, statement, values)


async def rejections(
    connection: AsyncConnection, *, platform_id: Id, since: datetime, before: Id | None = None
) -> Counted:
    """Return the rejections `since` a time; of messages before the id `before`, if any."""
    return await _newest(connection, _REJECTIONS, platform_id, since, before)


async def deliveries(
    connection: AsyncConnection, *, platform_id: Id, since: datetime, before: Id | None = None
) -> Counted:
    """Return the webhooks that were delivered `since` a time; those before an id, if any."""
    return await _newest(connection, _DELIVERED, platform_id, since, before)


async def _newest(
    connection: AsyncConnection, statement: str, platform_id: Id, since: datetime, before: Id | None
) -> Counted:
    """Return what `statement` counts of the first of `RATE_ROWS` that are enough, or the last."""
    values = {
        "platform": platform_id,
        "since": since,
        "first": first_id_at(since - _WAITED),
        "before": before or _LAST_ID,
    }
    if before is not None:
        return await _counted(connection, statement, {**values, "size": EARLIER_ROWS})
    found = Counted(numbers={}, is_whole=False, reached_at=None, begin=None)
    for size in RATE_ROWS:
        found = await _counted(connection, statement, {**values, "size": size})
        if found.is_whole:
            break
    return found


async def _counted(
    connection: AsyncConnection, statement: str, values: Mapping[str, Any]
) -> Counted:
    rows = (await connection.execute(text(statement), values)).all()
    numbers: dict[int, dict[str, int]] = {}
    for row in rows:
        if row.place is not None:
            numbers.setdefault(row.place, {})[row.name] = row.number
    reached = rows[0]
    return Counted(
        numbers=numbers,
        is_whole=bool(reached.is_whole),
        reached_at=reached.reached_at,
        begin=reached.begin,
    )


async def _tables_of(connection: AsyncConnection) -> str:
    """Return the PostgreSQL schema of the tables, behind that of the views."""
    found = await connection.scalar(text("SELECT current_schemas(false)"))
    return location.checked(found[-1])
