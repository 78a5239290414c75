"""Rates, depths and ages of a running system, each by one bounded statement on an index.

Decisions are counted at the physical end of their table: it is append-only, so its last pages have
the newest rows, and an index on the time would cost every decision. Rows that fill the space of an
insert that was rolled back are missed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg import Connection

from cardledger.ledger.messaging.enqueued_events import WAITING
from cardledger.ledger.messaging.inbox import CANARIES_FROM, SHARDS, Lane
from cardledger.ledger.storage.ids import first_id_at
from cardledger.schema.tables.webhooks import APPROVALS_BEFORE, APPROVALS_EARLIER_BY

COUNT_LIMIT: Final = 10_000
"""The highest exact count of a sample."""

RATE_WINDOW_S: Final = 10.0
"""The time of which a rate of decisions is the mean."""

REPORTED_FOR: Final = timedelta(days=1)
"""The age up to which rejections and forged messages are counted."""

_TAIL_PAGES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How many rows wait, and the age of the oldest; `is_capped`: more than `COUNT_LIMIT`."""

    count: int
    is_capped: bool = False
    age_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a system. A figure whose statement was ended at its time limit is missing.

    `decisions_per_s` has each outcome of the last ten seconds; `attempts` are all attempts to
    deliver a webhook since PostgreSQL's statistics were reset, a second or more late.
    """

    at: datetime
    decisions_per_s: Mapping[str, float] = field(default_factory=dict)
    attempts: int | None = None
    depths: Mapping[str, Depth] = field(default_factory=dict)
    missing: Sequence[str] = ()


def _tail(table: str, columns: str) -> str:
    """Return the query of the rows at the physical end of `table`, and whether it has others."""
    return f"""
        WITH start AS MATERIALIZED (
            SELECT greatest(
                pg_relation_size('{table}'::regclass) / current_setting('block_size')::int
                    - {_TAIL_PAGES}, 0
            ) AS page
        )
        SELECT {columns}, recorded_at, (SELECT page > 0 FROM start) AS has_others
        FROM {table} WHERE ctid >= (SELECT ('(' || page || ',0)')::tid FROM start)
    """


def _rates(table: str, outcome: str, number: str) -> str:
    """Return the statement of decisions a second, by outcome.

    When the rows read do not reach back to the beginning of the window, the window is shorter.
    """
    return f"""
        WITH tail AS MATERIALIZED ({_tail(table, f"{outcome} AS outcome, {number} AS number")}),
        span AS (
            SELECT CASE WHEN bool_or(has_others) THEN least(
                {RATE_WINDOW_S}, greatest(extract(epoch FROM now() - min(recorded_at)), 0.1)
            ) ELSE {RATE_WINDOW_S} END AS seconds
            FROM tail
        )
        SELECT outcome, (sum(number) / seconds)::float8
        FROM tail, span
        WHERE recorded_at > now() - seconds * interval '1 second'
        GROUP BY outcome, seconds ORDER BY outcome
    """


RATES: Final[Mapping[str, str]] = {
    "outcomes": _rates("outcomes", "outcome", "1"),
    "duplicates": _rates("duplicates", "'DUPLICATE'", "cardinality(ids)"),
    "rejections": _rates("rejections", "'REJECTED'", "1"),
}
"""Statements of decisions a second, by the table that has the decisions."""

ATTEMPTS: Final = "SELECT pg_stat_get_tuples_inserted('webhook_attempts'::regclass)"


def _inbox(lane: Lane) -> str:
    # The oldest of each shard is the first of its queue.
    return f"""
        SELECT
            (SELECT count(*) FROM (
                SELECT FROM inbox WHERE lane = {lane:d} AND customer_id < %(canaries)s
                LIMIT %(limit)s
            ) waiting),
            (SELECT extract(epoch FROM now() - min(received_at))
            FROM generate_series(0, {SHARDS - 1}) AS s (shard) CROSS JOIN LATERAL (
                SELECT received_at FROM inbox
                WHERE lane = {lane:d} AND inbox.shard = s.shard AND customer_id < %(canaries)s
                ORDER BY id LIMIT 1
            ) oldest)
    """


def _count(rows: str) -> str:
    return f"SELECT count(*), NULL FROM (SELECT FROM {rows} LIMIT %(limit)s) counted"


DEPTHS: Final[Mapping[str, str]] = {
    **{f"inbox {lane.name.lower()}": _inbox(lane) for lane in Lane},
    "enqueued": WAITING,
    "outbox": """
        SELECT (SELECT count(*) FROM (SELECT FROM outbox LIMIT %(limit)s) waiting),
            (SELECT extract(epoch FROM now() - recorded_at) FROM outbox ORDER BY id LIMIT 1)
    """,
    "deliveries pending": _count("webhook_deliveries WHERE next_attempt_at IS NOT NULL"),
    "parked": _count("parked"),
    "rejected": _count("rejections WHERE id >= %(reported_from)s"),
    "forged": _count("forged_messages WHERE id >= %(reported_from)s"),
    "queues stalled": _count("stalled_queues WHERE is_whole_queue"),
    "cardholders stalled": _count("stalled_queues WHERE NOT is_whole_queue"),
    "exceptions": _count("card_transactions WHERE debt_since IS NOT NULL AND status = 'EXCEPTION'"),
}
"""Statements of depths, each one row: a count of at most `COUNT_LIMIT` and one, and an age."""

GROUPED: Final[Mapping[str, str]] = {
    "rejections by reason": """
        SELECT reason, count(*) FROM (
            SELECT reason FROM rejections WHERE id >= %(reported_from)s LIMIT %(limit)s
        ) recent
        GROUP BY reason
    """,
    "exceptions by currency": """
        SELECT currency, count(*), sum(due)::float8, sum(owed)::float8,
            extract(epoch FROM now() - min(debt_since))::float8
        FROM (
            SELECT currency, debt_since, open_pull::numeric + unpaid AS due,
                greatest(
                    settled - pulled + released - (written_off - debits_written_off), 0
                )::numeric + unpaid AS owed
            FROM card_transactions WHERE debt_since IS NOT NULL AND status = 'EXCEPTION'
            LIMIT %(limit)s
        ) owing
        GROUP BY currency
    """,
    # Two looks an endpoint, as a sender that claims deliveries takes: at approvals, and at others.
    "oldest due delivery": """
        SELECT extract(epoch FROM now() - min(due.since))::float8
        FROM (
            SELECT id FROM webhook_endpoints WHERE deleted_at IS NULL AND state = 'ENABLED'
            LIMIT %(limit)s
        ) e
        CROSS JOIN LATERAL (
            (SELECT next_attempt_at AS since FROM webhook_deliveries
            WHERE endpoint_id = e.id AND next_attempt_at BETWEEN %(first)s AND now()
            ORDER BY next_attempt_at LIMIT 1)
            UNION ALL
            (SELECT next_attempt_at + %(before_others)s FROM webhook_deliveries
            WHERE endpoint_id = e.id AND next_attempt_at < %(first)s
            ORDER BY next_attempt_at LIMIT 1)
        ) due
    """,
}
"""Statements of figures by a label, its values first; of at most `COUNT_LIMIT` and one rows."""


def parameters(now: datetime) -> dict[str, Any]:
    """Return the values of the parameters of all statements."""
    return {
        "canaries": CANARIES_FROM,
        "first": APPROVALS_BEFORE,
        "before_others": APPROVALS_EARLIER_BY,
        "limit": COUNT_LIMIT + 1,
        "reported_from": first_id_at(now - REPORTED_FOR),
    }


def sample(connection: Connection[Any]) -> Sample:
    """Return the figures of now. Each statement is a database transaction of its own.

    Shape: `connection` commits automatically, and its statements have a time limit.
    """
    missing: list[str] = []
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None, "a SELECT without FROM has a row"
    values = parameters(row[0])

    def rows(name: str, statement: str) -> list[tuple[Any, ...]]:
        try:
            return connection.execute(statement.encode(), values).fetchall()
        except psycopg.errors.QueryCanceled:
            missing.append(name)
            return []

    decisions = {
        outcome: per_s for name, text in RATES.items() for outcome, per_s in rows(name, text)
    }
    attempts = rows("attempts", ATTEMPTS)
    depths = {
        name: _depth(count, age) for name, text in DEPTHS.items() for count, age in rows(name, text)
    }
    return Sample(
        at=row[0],
        decisions_per_s=decisions,
        attempts=attempts[0][0] if attempts else None,
        depths=depths,
        missing=missing,
    )


def _depth(count: int, age_s: Any) -> Depth:  # noqa: ANN401 - a Decimal or None
    return Depth(
        count=min(count, COUNT_LIMIT),
        is_capped=count > COUNT_LIMIT,
        age_s=None if age_s is None else max(float(age_s), 0.0),
    )
