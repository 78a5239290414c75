"""Figures of one platform now: what waits, exceptions, endpoints, the last proof of the books.

Every statement reads by an index and has a limit on its rows, those of other platforms included, or
on its time where a view hides them. What stopped at a limit says so: it is "at least" that much.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.messaging.inbox import CANARIES_FROM, SHARDS, Lane
from cardledger.ledger.storage.engines import is_cancelled
from cardledger.ledger.storage.snapshot_connections import limited
from cardledger.schema.ids import Id

ROW_LIMIT = 10_000
"""The highest exact count of rows that wait, or are exceptions."""

QUEUE_ROWS: Final = 100
"""The oldest rows of each queue among which that of a platform is looked for."""

ENDPOINT_LIMIT: Final = 20
"""How many failing endpoints are read at most."""

LOOK_LIMIT_MS: Final = 500
"""How long a look at the outbox may take."""

AGES: Final = ("0–1 days", "2–3 days", "4–7 days", "8–14 days", "over 14 days")  # noqa: RUF001 - ranges
"""The age groups of exceptions."""

_INBOX: Final = """
    SELECT count(*) FILTER (WHERE platform_id = :platform),
        min(received_at) FILTER (WHERE platform_id = :platform), count(*)
    FROM (
        SELECT received_at, platform_id FROM inbox
        WHERE lane = :lane AND customer_id < :canaries LIMIT :limit
    ) waiting
"""

# Of a backlog, whose rows are in the order of queues: the oldest of the platform in each queue. It
# is known where it is among the first rows of its queue, or these are all.
OLDEST: Final = f"""
    SELECT min(found.since), coalesce(bool_and(found.since IS NOT NULL OR found.rows < :rows), true)
    FROM generate_series(0, {SHARDS - 1}) AS s (shard) CROSS JOIN LATERAL (
        SELECT count(*) AS rows, min(received_at) FILTER (WHERE platform_id = :platform) AS since
        FROM (
            SELECT received_at, platform_id FROM inbox
            WHERE lane = :lane AND inbox.shard = s.shard AND customer_id < :canaries
            ORDER BY id LIMIT :rows
        ) oldest
    ) found
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
        count(*), sum(due)::numeric
    FROM (
        SELECT currency, floor(extract(epoch FROM :now - debt_since) / 86400) AS days,
            open_pull::numeric + unpaid AS due
        FROM card_transactions
        WHERE debt_since IS NOT NULL AND status = 'EXCEPTION' AND platform_id = :platform
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

_VERIFIED: Final = """
    SELECT ended_at, differences FROM book_verification_runs
    ORDER BY began_at DESC, id DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How many rows wait, and since when the oldest; `is_capped`: at least so many.

    That is, more rows wait than are read, of this platform or of others. `is_older`: the oldest may
    wait for longer.
    """

    name: str
    count: int
    is_capped: bool
    since: datetime | None
    is_older: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenExceptions:
    """The exceptions of a currency: how many of each age (`AGES`), and what is due in them.

    That is what the accounts are asked for: besides what is owed, pulls of holds that have failed.
    `is_capped`: at least so many; more than `ROW_LIMIT` of all currencies are open.
    """

    currency: str
    counts: Sequence[int]
    due: Sequence[int]
    is_capped: bool = False

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.counts)

    @property
    def total(self) -> int:
        """What is due, in minor units."""
        return sum(self.due)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingEndpoint:
    """An endpoint whose deliveries fail, or that was disabled for that."""

    id: Id
    url: str
    state: str
    disabled_reason: str | None
    failing_since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """A run of `cardledger verify` and how many differences it found; 0: the books held."""

    ended_at: datetime
    differences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformFigures:
    """What waits, what is due, and what fails."""

    depths: Sequence[Depth]
    exceptions: Sequence[OpenExceptions]
    failing_endpoints: Sequence[FailingEndpoint]  # At most `ENDPOINT_LIMIT`.
    has_more_failing: bool
    verification: Verification | None  # That which began last, of all platforms.


async def read(connection: AsyncConnection, *, platform_id: Id, now: datetime) -> PlatformFigures:
    """Return the figures of a platform; `connection` sees one snapshot."""
    failing = await _failing(connection, platform_id)
    return PlatformFigures(
        depths=await depths(connection, platform_id=platform_id),
        exceptions=await _exceptions(connection, platform_id, now),
        failing_endpoints=failing[:ENDPOINT_LIMIT],
        has_more_failing=len(failing) > ENDPOINT_LIMIT,
        verification=await _verification(connection),
    )


async def depths(connection: AsyncConnection, *, platform_id: Id) -> Sequence[Depth]:
    """Return what waits, of a platform, and in the outbox of all."""
    return [
        *[
            await _inbox(
                connection,
                f"inbox, {lane.name.lower()}",
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


async def _verification(connection: AsyncConnection) -> Verification | None:
    row = (await connection.execute(text(_VERIFIED))).mappings().one_or_none()
    return None if row is None else Verification(**row)


async def _inbox(connection: AsyncConnection, name: str, values: Mapping[str, Any]) -> Depth:
    depth = await _depth(connection, name, _INBOX, values)
    if not depth.is_capped:
        return depth
    row = (await connection.execute(text(OLDEST), {**values, "rows": QUEUE_ROWS})).one()
    times = [at for at in (depth.since, row[0]) if at is not None]
    return replace(depth, since=min(times, default=None), is_older=not row[1])


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
    for currency, age, count, due in rows:
        numbers, sums = found.setdefault(currency, ([0] * len(AGES), [0] * len(AGES)))
        numbers[age], sums[age] = count, int(due)
    is_capped = sum(sum(numbers) for numbers, _ in found.values()) > ROW_LIMIT
    return [
        OpenExceptions(currency=currency, counts=numbers, due=sums, is_capped=is_capped)
        for currency, (numbers, sums) in found.items()
    ]
