"""Figures of one platform now: rates of decisions and webhooks, what waits, exceptions, endpoints.

Every statement reads by an index and has a limit on its rows, those of other platforms included, or
on its time where a view hides them. What stopped at a limit says so: it is "at least" that much.

Rates are counted by the time of the decision and of the delivery, whenever the message was
accepted: decisions at the physical end of their table, which is append-only and has no index by
time; rejections and deliveries by the newest ids of the platform. They are read back to one that is
older than the intervals that are asked for, or to the limit; a caller adds them up over time.
Deliveries to an endpoint that is far behind may be missed beside newer ones of other endpoints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.messaging.inbox import CANARIES_FROM, Lane
from cardledger.ledger.storage.engines import is_cancelled
from cardledger.ledger.storage.ids import first_id_at
from cardledger.ledger.storage.snapshot_connections import limited
from cardledger.schema import location
from cardledger.schema.ids import Id

ROW_LIMIT = 10_000
"""The highest exact count of rows that wait, or are exceptions."""

RATE_ROWS: Final = (2_000, 12_000, 50_000)
"""Rejections or deliveries of a platform that a look at the rates reads, from try to try."""

RATE_PAGES: Final = (25, 50, 75, 100, 150, 200, 300, 400, 500, 600, 800, 1_000, 1_200)
"""Pages of decisions, of all platforms, that a look at the rates reads: the first that is enough.

A page has some forty rows.
"""

RATE_MARGIN: Final = 50
"""Pages that are read before those: each connection of a worker fills a page of its own."""

REJECTED = "REJECTED"
"""The outcome of a rejection, among those of the decisions."""

ENDPOINT_LIMIT: Final = 20
"""How many failing endpoints are read at most."""

LOOK_LIMIT_MS = 500
"""How long a look at the rates, or at the outbox, may take for each statement."""

INTERVAL_S: Final = 10
"""The length of an interval of the rates."""

AGES: Final = ("0–1 days", "2–3 days", "4–7 days", "8–14 days", "over 14 days")  # noqa: RUF001 - ranges
"""The age groups of exceptions."""

_WAITED: Final = timedelta(days=1)  # What was accepted earlier is not looked for.


_BY_INTERVAL: Final = f"""
    SELECT floor(extract(epoch FROM at) / {INTERVAL_S})::bigint AS place, name, count(*) AS number
"""  # The columns of a query of rows with a time `at` and a name, grouped by place and name.

# The table, not the view of a platform, through which its physical end cannot be read. Of others
# nothing is returned. The smallest tail that begins with an older row is enough: a newer row before
# its margin is missed.
_DECISIONS: Final = f"""
    WITH tails AS MATERIALIZED (
        SELECT greatest(
            pg_relation_size('{{tables}}.outcomes'::regclass)
                / CAST(current_setting('block_size') AS bigint) - size, 0
        ) AS page
        FROM unnest(CAST(:sizes AS int[])) AS size
    ),
    start AS MATERIALIZED (
        SELECT max(page) FILTER (WHERE first_at < :since) AS enough, min(page) AS most
        FROM (
            SELECT page, (
                SELECT recorded_at FROM {{tables}}.outcomes
                WHERE ctid >= CAST('(' || page || ',0)' AS tid)
                    AND ctid < CAST('(' || page + 1 || ',0)' AS tid)
                LIMIT 1
            ) AS first_at
            FROM tails
        ) probed
    )
    SELECT counted.place, counted.name, counted.number,
        start.enough IS NOT NULL OR start.most = 0 AS is_whole
    FROM start LEFT JOIN (
        {_BY_INTERVAL}
        FROM (
            SELECT recorded_at AS at, outcome AS name FROM {{tables}}.outcomes
            WHERE ctid >= (
                SELECT CAST('(' || greatest(coalesce(enough, most) - :margin, 0) || ',0)' AS tid)
                FROM start
            )
                AND recorded_at >= :since AND platform_id = :platform
        ) recent
        GROUP BY place, name
    ) counted ON true
"""


def _newest_by_interval(recent: str) -> str:
    """Return the statement of how many of `recent` rows there were of each name and interval.

    They are the newest rows of the platform, `:size` of them, with their time `at`; `is_whole` says
    whether older ones need not be read.
    """
    return f"""
        WITH recent AS MATERIALIZED ({recent} ORDER BY id DESC LIMIT :size),
        reached AS (SELECT count(*) < :size OR min(at) < :since AS is_whole FROM recent)
        SELECT counted.place, counted.name, counted.number, reached.is_whole
        FROM reached LEFT JOIN (
            {_BY_INTERVAL} FROM recent WHERE at >= :since GROUP BY place, name
        ) counted ON true
    """


_REJECTIONS: Final = _newest_by_interval(
    f"""
    SELECT recorded_at AS at, '{REJECTED}' AS name FROM rejections
    WHERE platform_id = :platform AND id >= :first
    """
)

_DELIVERED: Final = _newest_by_interval(
    """
    SELECT delivered_at AS at, 'DELIVERED' AS name FROM webhook_deliveries
    WHERE platform_id = :platform AND state = 'DELIVERED' AND id >= :first
    """
)

_INBOX: Final = """
    SELECT count(*) FILTER (WHERE platform_id = :platform),
        min(received_at) FILTER (WHERE platform_id = :platform), count(*)
    FROM (
        SELECT received_at, platform_id FROM inbox
        WHERE lane = :lane AND customer_id < :canaries LIMIT :limit
    ) waiting
"""

_OUTBOX: Final = """
    SELECT count(*), min(recorded_at), count(*)
    FROM (SELECT recorded_at FROM outbox ORDER BY id LIMIT :limit) waiting
"""

_PENDING: Final = """
    SELECT count(*), min(created_at), count(*)
    FROM (
        SELECT created_at FROM webhook_deliveries
        WHERE platform_id = :platform AND state = 'PENDING' ORDER BY id LIMIT :limit
    ) waiting
"""

_EXCEPTIONS: Final = """
    SELECT currency,
        CASE WHEN days < 2 THEN 0 WHEN days < 4 THEN 1 WHEN days < 8 THEN 2 WHEN days < 15 THEN 3
            ELSE 4 END AS age,
        count(*), sum(owed)::numeric
    FROM (
        SELECT currency, floor(extract(epoch FROM :now - debt_since) / 86400) AS days,
            greatest(settled - pulled + released - (written_off - debits_written_off), 0)::numeric
                + unpaid AS owed
        FROM card_transactions
        WHERE debt_id IS NOT NULL AND status = 'EXCEPTION' AND platform_id = :platform
        LIMIT :limit
    ) owing
    GROUP BY currency, age ORDER BY currency, age
"""

_ENDPOINTS: Final = """
    SELECT id, url, state, disabled_reason, failing_since FROM webhook_endpoints
    WHERE platform_id = :platform AND deleted_at IS NULL
        AND (failing_since IS NOT NULL OR disabled_reason IN ('GONE', 'FAILING'))
    ORDER BY id LIMIT :limit
"""

_VERIFIED: Final = "SELECT verified_at FROM book_verifications ORDER BY id DESC LIMIT 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How many rows wait, and since when the oldest; `is_capped`: at least so many.

    That is, more rows wait than are read, of this platform or of others.
    """

    name: str
    count: int
    is_capped: bool
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenExceptions:
    """The exceptions of a currency: how many of each age (`AGES`), and what is owed in them.

    `is_capped`: at least so many; more than `ROW_LIMIT` of all currencies are open.
    """

    currency: str
    counts: Sequence[int]
    owed: Sequence[int]
    is_capped: bool = False

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.counts)

    @property
    def total(self) -> int:
        """What is owed, in minor units."""
        return sum(self.owed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingEndpoint:
    """An endpoint whose deliveries fail, or that was disabled for that."""

    id: Id
    url: str
    state: str
    disabled_reason: str | None
    failing_since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformFigures:
    """What waits, what is owed, and what fails."""

    depths: Sequence[Depth]
    exceptions: Sequence[OpenExceptions]
    failing_endpoints: Sequence[FailingEndpoint]  # At most `ENDPOINT_LIMIT`.
    has_more_failing: bool
    verified_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Decisions by interval and outcome, and deliveries by interval; a place times `INTERVAL_S`.

    `are_decisions_capped`, `are_deliveries_capped`: there may be more in the older intervals.
    """

    decisions: Mapping[int, Mapping[str, int]]
    delivered: Mapping[int, int]
    are_decisions_capped: bool
    are_deliveries_capped: bool


async def read(connection: AsyncConnection, *, platform_id: Id, now: datetime) -> PlatformFigures:
    """Return the figures of a platform; `connection` sees one snapshot."""
    failing = await _failing(connection, platform_id)
    return PlatformFigures(
        depths=await depths(connection, platform_id=platform_id),
        exceptions=await _exceptions(connection, platform_id, now),
        failing_endpoints=failing[:ENDPOINT_LIMIT],
        has_more_failing=len(failing) > ENDPOINT_LIMIT,
        verified_at=await connection.scalar(text(_VERIFIED)),
    )


async def depths(connection: AsyncConnection, *, platform_id: Id) -> Sequence[Depth]:
    """Return what waits, of a platform, and in the outbox of all."""
    return [
        *[
            await _depth(
                connection,
                f"inbox, {lane.name.lower()}",
                _INBOX,
                {"platform": platform_id, "lane": int(lane), "canaries": CANARIES_FROM},
            )
            for lane in Lane
        ],
        await _outbox(connection),
        await _depth(connection, "webhooks to send", _PENDING, {"platform": platform_id}),
    ]


async def _failing(connection: AsyncConnection, platform_id: Id) -> list[FailingEndpoint]:
    """Return the failing endpoints, and one more than `ENDPOINT_LIMIT` when there are others."""
    values = {"platform": platform_id, "limit": ENDPOINT_LIMIT + 1}
    rows = await connection.execute(text(_ENDPOINTS), values)
    return [FailingEndpoint(**row) for row in rows.mappings()]


async def counts(connection: AsyncConnection, *, platform_id: Id, since: datetime) -> Counts:
    """Return the decisions, rejections among them, and the deliveries of webhooks `since` a time.

    Raises: OperationalError, for which `is_cancelled`, when there are too many to read in time; the
    database transaction goes on.
    """
    values = {"platform": platform_id, "since": since, "first": first_id_at(since - _WAITED)}
    outcomes = _DECISIONS.format(tables=await _tables_of(connection))
    async with limited(connection, LOOK_LIMIT_MS):
        tail = {"sizes": [*RATE_PAGES], "margin": RATE_MARGIN}
        decided = await _counted(connection, outcomes, values | tail)
        rejected = await _newest(connection, _REJECTIONS, values)
        delivered = await _newest(connection, _DELIVERED, values)
    decisions: dict[int, dict[str, int]] = {}
    for place, name, number in [*decided.numbers, *rejected.numbers]:
        decisions.setdefault(place, {})[name] = number
    return Counts(
        decisions=decisions,
        delivered={place: number for place, _, number in delivered.numbers},
        are_decisions_capped=not (decided.is_whole and rejected.is_whole),
        are_deliveries_capped=not delivered.is_whole,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    numbers: Sequence[tuple[int, str, int]]  # The interval, the name, how many.
    is_whole: bool


async def _newest(
    connection: AsyncConnection, statement: str, values: Mapping[str, Any]
) -> _Counted:
    """Return what `statement` counts of the first of `RATE_ROWS` that are enough, or the last."""
    found = _Counted(numbers=(), is_whole=False)
    for size in RATE_ROWS:
        found = await _counted(connection, statement, {**values, "size": size})
        if found.is_whole:
            break
    return found


async def _counted(
    connection: AsyncConnection, statement: str, values: Mapping[str, Any]
) -> _Counted:
    rows = (await connection.execute(text(statement), values)).all()
    return _Counted(
        numbers=[(row.place, row.name, row.number) for row in rows if row.place is not None],
        is_whole=bool(rows[0].is_whole),
    )


async def _tables_of(connection: AsyncConnection) -> str:
    """Return the PostgreSQL schema of the tables, behind that of the views."""
    found = await connection.scalar(text("SELECT current_schemas(false)"))
    return location.checked(found[-1])


async def _outbox(connection: AsyncConnection) -> Depth:
    try:
        async with limited(connection, LOOK_LIMIT_MS):
            return await _depth(connection, "outbox", _OUTBOX, {})
    except OperationalError as error:
        if not is_cancelled(error):
            raise
        # Rows of other platforms, which the view reads over.
        return Depth(name="outbox", count=0, is_capped=True, since=None)


async def _depth(
    connection: AsyncConnection, name: str, statement: str, values: Mapping[str, Any]
) -> Depth:
    count, since, read_rows = (
        await connection.execute(text(statement), {**values, "limit": ROW_LIMIT + 1})
    ).one()
    return Depth(
        name=name, count=min(count, ROW_LIMIT), is_capped=read_rows > ROW_LIMIT, since=since
    )


async def _exceptions(
    connection: AsyncConnection, platform_id: Id, now: datetime
) -> list[OpenExceptions]:
    rows = await connection.execute(
        text(_EXCEPTIONS), {"platform": platform_id, "now": now, "limit": ROW_LIMIT + 1}
    )
    found: dict[str, tuple[list[int], list[int]]] = {}
    for currency, age, count, owed in rows:
        numbers, sums = found.setdefault(currency, ([0] * len(AGES), [0] * len(AGES)))
        numbers[age], sums[age] = count, int(owed)
    is_capped = sum(sum(numbers) for numbers, _ in found.values()) > ROW_LIMIT
    return [
        OpenExceptions(currency=currency, counts=numbers, owed=sums, is_capped=is_capped)
        for currency, (numbers, sums) in found.items()
    ]
