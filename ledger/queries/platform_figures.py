"""Figures of one platform now: rates of decisions and webhooks, what waits, exceptions, endpoints.

Every statement reads by an index and has a limit on its rows. Rates are counted by the time in the
ids of messages and deliveries: the newest ones only, in intervals that a caller adds up over time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.messaging.inbox import CANARIES_FROM, Lane
from cardledger.ledger.storage.ids import first_id_at
from cardledger.schema.ids import Id

ROW_LIMIT: Final = 10_000
"""The highest exact count of rows that wait, or are exceptions."""

RATE_ROWS: Final = 20_000
"""Decisions, and deliveries, that one look at the rates counts; the newest."""

INTERVAL_S: Final = 10
"""The length of an interval of the rates."""

AGES: Final = ("0–1 days", "2–3 days", "4–7 days", "8–14 days", "over 14 days")  # noqa: RUF001 - ranges
"""The age groups of exceptions."""

_DECISIONS: Final = f"""
    SELECT floor(extract(epoch FROM recorded_at) / {INTERVAL_S})::bigint AS place, outcome, count(*)
    FROM (
        SELECT recorded_at, outcome FROM outcomes
        WHERE message_id >= :first AND platform_id = :platform
        ORDER BY message_id DESC LIMIT {RATE_ROWS}
    ) recent
    GROUP BY place, outcome
"""

_DELIVERED: Final = f"""
    SELECT floor(extract(epoch FROM delivered_at) / {INTERVAL_S})::bigint AS place,
        count(*) AS number
    FROM (
        SELECT delivered_at FROM webhook_deliveries
        WHERE platform_id = :platform AND id >= :first
        ORDER BY id DESC LIMIT {RATE_ROWS}
    ) recent
    WHERE delivered_at IS NOT NULL
    GROUP BY place
"""

_INBOX: Final = f"""
    SELECT count(*), min(received_at)
    FROM (
        SELECT received_at, platform_id FROM inbox
        WHERE lane = :lane AND customer_id < :canaries LIMIT {ROW_LIMIT + 1}
    ) waiting
    WHERE platform_id = :platform
"""

_OUTBOX: Final = f"""
    SELECT count(*), min(recorded_at)
    FROM (SELECT recorded_at FROM outbox ORDER BY id LIMIT {ROW_LIMIT + 1}) waiting
"""

_PENDING: Final = f"""
    SELECT count(*), min(created_at)
    FROM (
        SELECT created_at FROM webhook_deliveries
        WHERE platform_id = :platform AND state = 'PENDING' ORDER BY id LIMIT {ROW_LIMIT + 1}
    ) waiting
"""

_EXCEPTIONS: Final = f"""
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
        LIMIT {ROW_LIMIT + 1}
    ) owing
    GROUP BY currency, age ORDER BY currency, age
"""

_ENDPOINTS: Final = """
    SELECT id, url, state, disabled_reason, failing_since FROM webhook_endpoints
    WHERE platform_id = :platform AND deleted_at IS NULL
        AND (failing_since IS NOT NULL OR disabled_reason IN ('GONE', 'FAILING'))
    ORDER BY id LIMIT 20
"""

_VERIFIED: Final = "SELECT verified_at FROM book_verifications ORDER BY id DESC LIMIT 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How many rows wait, and since when the oldest; `is_capped`: more than `ROW_LIMIT`."""

    name: str
    count: int
    is_capped: bool
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenExceptions:
    """The exceptions of a currency: how many of each age (`AGES`), and what is owed in them."""

    currency: str
    counts: Sequence[int]
    owed: Sequence[int]

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
    failing_endpoints: Sequence[FailingEndpoint]
    verified_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Decisions by interval and outcome, and deliveries by interval; a place times `INTERVAL_S`."""

    decisions: Mapping[int, Mapping[str, int]]
    delivered: Mapping[int, int]


async def read(connection: AsyncConnection, *, platform_id: Id, now: datetime) -> PlatformFigures:
    """Return the figures of a platform; `connection` sees one snapshot."""
    return PlatformFigures(
        depths=[
            *[
                await _depth(
                    connection,
                    f"inbox, {lane.name.lower()}",
                    _INBOX,
                    {"platform": platform_id, "lane": int(lane), "canaries": CANARIES_FROM},
                )
                for lane in Lane
            ],
            await _depth(connection, "outbox", _OUTBOX, {}),
            await _depth(connection, "webhooks to send", _PENDING, {"platform": platform_id}),
        ],
        exceptions=await _exceptions(connection, platform_id, now),
        failing_endpoints=[
            FailingEndpoint(**row)
            for row in (
                await connection.execute(text(_ENDPOINTS), {"platform": platform_id})
            ).mappings()
        ],
        verified_at=await connection.scalar(text(_VERIFIED)),
    )


async def counts(connection: AsyncConnection, *, platform_id: Id, since: datetime) -> Counts:
    """Return the decisions of messages accepted `since`, and the deliveries of webhooks since."""
    values = {"platform": platform_id, "first": first_id_at(since)}
    decisions: dict[int, dict[str, int]] = {}
    for place, outcome, count in await connection.execute(text(_DECISIONS), values):
        decisions.setdefault(place, {})[outcome] = count
    rows = await connection.execute(text(_DELIVERED), values)
    return Counts(decisions=decisions, delivered={row.place: row.number for row in rows})


async def _depth(
    connection: AsyncConnection, name: str, statement: str, values: Mapping[str, Any]
) -> Depth:
    count, since = (await connection.execute(text(statement), dict(values))).one()
    return Depth(name=name, count=min(count, ROW_LIMIT), is_capped=count > ROW_LIMIT, since=since)


async def _exceptions(
    connection: AsyncConnection, platform_id: Id, now: datetime
) -> list[OpenExceptions]:
    rows = await connection.execute(text(_EXCEPTIONS), {"platform": platform_id, "now": now})
    found: dict[str, tuple[list[int], list[int]]] = {}
    for currency, age, count, owed in rows:
        numbers, sums = found.setdefault(currency, ([0] * len(AGES), [0] * len(AGES)))
        numbers[age], sums[age] = count, int(owed)
    return [
        OpenExceptions(currency=currency, counts=numbers, owed=sums)
        for currency, (numbers, sums) in found.items()
    ]
