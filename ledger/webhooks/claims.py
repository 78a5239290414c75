"""Which deliveries a sender claims: what is due, within its capacity, in fair turns.

A claim waits for no lock: rows that another transaction has locked are skipped. Requested tests
and approvals are claimed apart from the others.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.types.json import Jsonb

from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.webhooks.ordering import IS_REQUESTED_TEST, Queue, columns
from cardledger.schema.ids import Id
from cardledger.schema.tables.webhooks import APPROVALS_BEFORE


class PlatformShare(NamedTuple):
    """How many deliveries of a platform a sender can take.

    In total, of endpoints that are not named, and of those that only fail.
    """

    total: int
    others: int
    failing: int


_ANY_NUMBER: Final = PlatformShare(2**31 - 1, 2**31 - 1, 2**31 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How many deliveries a sender can take: in total, for each endpoint and for each platform.

    `shares` are the limits of named endpoints, `share` the limit of every other endpoint. All other
    endpoints together may have `others`; those that only fail may have `failing` instead, so that
    unreachable endpoints never delay unknown ones.

    `platforms` are the limits of platforms with attempts under way, `platform` is that of others.

    `platform_turns` and `turns` are the last turns of platforms and of endpoints, a higher number
    for a later turn. When there are more deliveries than capacity, the platform with the lowest
    turn comes first, and of its endpoints the one with the lowest, whatever the backlogs.

    `busy` are queues with an attempt under way: their other deliveries wait, so that webhooks
    normally arrive in order.
    """

    total: int
    share: int
    shares: Mapping[Id, int]
    others: int
    failing: int
    busy: Collection[Queue]
    turns: Mapping[Id, int] = field(default_factory=dict)
    platform: PlatformShare = _ANY_NUMBER
    platforms: Mapping[Id, PlatformShare] = field(default_factory=dict)
    platform_turns: Mapping[Id, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformCapacity:
    """How many deliveries of a lane of their own a sender can take: in total, and of each platform.

    `shares` are what platforms with attempts under way may have besides, `share` is for the others.
    """

    total: int
    share: int
    shares: Mapping[Id, int] = field(default_factory=dict)


class RequestedTests(PlatformCapacity):
    """How many tests that a request waits for."""


class Approvals(PlatformCapacity):
    """How many requests for approval, which payments wait for."""


_CLAIMED: Final = """
    RETURNING taken.next_attempt_at, w.webhook_id, w.id, w.customer_id, w.platform_id, w.type,
        w.subject_id, w.body, w.attempts - w.attempts_before, w.endpoint_id, taken.updated_at,
        taken.url, taken.is_fifo, taken.failing_since
"""

# One index scan per endpoint, so that a long backlog of one endpoint never hides another. When
# there are more deliveries than capacity, every platform gets its first before any gets a second,
# and so does every endpoint of a platform: one with a hundred endpoints has one turn of two beside
# one with a single endpoint. Shares and turns are looked up by key: a join would compare every
# endpoint with every row.
_CLAIM: Final = f"""
    WITH due AS MATERIALIZED (
        SELECT oldest.*, e.updated_at, e.url, e.mode = 'FIFO' AS is_fifo, e.failing_since,
            r.share IS NOT NULL AS is_named, e.failing_since IS NOT NULL AS is_failing,
            e.platform_id, r.room, coalesce(r.platform_turn, 0) AS platform_turn,
            coalesce(r.turn, 0) AS turn, row_number() OVER (
                PARTITION BY e.id ORDER BY oldest.next_attempt_at, oldest.webhook_id) AS queue_rank
        FROM webhook_endpoints e
        CROSS JOIN LATERAL (
            SELECT (%(shares)s::jsonb ->> e.id::text)::int4 AS share,
                (%(turns)s::jsonb ->> e.id::text)::int8 AS turn,
                (%(platform_turns)s::jsonb ->> e.platform_id::text)::int8 AS platform_turn,
                coalesce(%(platforms)s::jsonb -> e.platform_id::text, %(platform)s::jsonb) AS room
        ) r
        CROSS JOIN LATERAL (
            SELECT w.id, w.customer_id, w.next_attempt_at, w.webhook_id
            FROM webhook_deliveries w
            WHERE w.endpoint_id = e.id AND w.next_attempt_at BETWEEN %(first)s AND %(at)s
                AND NOT ({IS_REQUESTED_TEST})
                AND NOT EXISTS (
                    SELECT FROM unnest(%(busy_endpoints)s::uuid[], %(busy_subjects)s::uuid[])
                        AS busy (endpoint, subject)
                    WHERE endpoint = e.id AND subject = w.subject_id)
            ORDER BY w.next_attempt_at, w.webhook_id
            LIMIT coalesce(r.share, %(share)s)
            FOR UPDATE SKIP LOCKED
        ) oldest
        WHERE e.state = 'ENABLED' AND e.deleted_at IS NULL
    ), ranked AS (
        SELECT *, row_number() OVER (
            PARTITION BY is_named, is_failing
            ORDER BY platform_rank, platform_turn, next_attempt_at, webhook_id) AS rank
        FROM (
            SELECT *, row_number() OVER (
                PARTITION BY platform_id, is_named, is_failing
                ORDER BY queue_rank, turn, next_attempt_at, webhook_id) AS platform_rank
            FROM due
        ) of_platform
        WHERE is_named OR platform_rank <= (room -> CASE WHEN is_failing THEN 2 ELSE 1 END)::int4
    ), placed AS (
        SELECT *, row_number() OVER (
            PARTITION BY platform_id
            ORDER BY queue_rank, turn, next_attempt_at, webhook_id) AS place
        FROM ranked
        WHERE is_named OR rank <= CASE WHEN is_failing THEN %(failing)s ELSE %(others)s END
    ), taken AS MATERIALIZED (
        SELECT * FROM placed WHERE place <= (room -> 0)::int4
        ORDER BY place, platform_turn, next_attempt_at, webhook_id LIMIT %(total)s
    )
    UPDATE webhook_deliveries w
    SET next_attempt_at = %(leased_until)s, lease_ends_at = %(leased_until)s
    FROM taken WHERE w.id = taken.id AND w.customer_id = taken.customer_id
    {_CLAIMED}
"""

# Beside the other attempts of an endpoint. One index scan per endpoint again. The platform with the
# fewest attempts under way comes first, however old the backlogs of others.
_CLAIM_APART: Final = f"""
    WITH due AS MATERIALIZED (
        SELECT oldest.*, e.updated_at, e.url, e.mode = 'FIFO' AS is_fifo, e.failing_since, s.share,
            row_number() OVER (
                PARTITION BY e.platform_id ORDER BY next_attempt_at, webhook_id) AS rank
        FROM webhook_endpoints e
        CROSS JOIN LATERAL (
            SELECT coalesce((%(shares)s::jsonb ->> e.platform_id::text)::int4, %(share)s) AS share
        ) s
        CROSS JOIN LATERAL (
            SELECT w.id, w.customer_id, w.next_attempt_at, w.webhook_id
            FROM webhook_deliveries w
            WHERE w.endpoint_id = e.id AND {{deliveries}}
            ORDER BY w.next_attempt_at, w.webhook_id LIMIT s.share
            FOR UPDATE SKIP LOCKED
        ) oldest
        WHERE e.deleted_at IS NULL AND {{endpoints}}
    ), taken AS MATERIALIZED (
        SELECT * FROM due WHERE rank <= share
        ORDER BY rank - share, next_attempt_at, webhook_id LIMIT %(total)s
    )
    UPDATE webhook_deliveries w
    SET next_attempt_at = %(leased_until)s, lease_ends_at = %(leased_until)s
    FROM taken WHERE w.id = taken.id AND w.customer_id = taken.customer_id
    {_CLAIMED}
"""

# Of disabled endpoints, too. The subject of a test is its endpoint.
_CLAIM_TESTS: Final = _CLAIM_APART.format(
    deliveries=f"w.subject_id = e.id AND w.next_attempt_at <= %(at)s AND {IS_REQUESTED_TEST}",
    endpoints="true",
)
_CLAIM_APPROVALS: Final = _CLAIM_APART.format(
    deliveries="w.next_attempt_at < %(first)s", endpoints="e.state = 'ENABLED'"
)


def claim(
    cursor: psycopg.Cursor[Any],
    capacity: Capacity | PlatformCapacity,
    at: datetime,
    leased_until: datetime,
) -> None:
    """Claim what is due `at` a time, within `capacity`; `cursor` then has a row for each delivery.

    Its columns are those that the statements return, as `leases` reads them.
    """
    if isinstance(capacity, PlatformCapacity):
        apart = {
            "at": at,
            "first": APPROVALS_BEFORE,
            "leased_until": leased_until,
            "total": capacity.total,
            "share": capacity.share,
            "shares": _by_key(capacity.shares),
        }
        is_of_tests = isinstance(capacity, RequestedTests)
        cursor.execute(_CLAIM_TESTS if is_of_tests else _CLAIM_APPROVALS, apart)
        return
    busy_endpoints, busy_subjects = columns(capacity.busy)
    arguments = {
        "at": at,
        "first": APPROVALS_BEFORE,
        "leased_until": leased_until,
        "total": capacity.total,
        "share": capacity.share,
        "others": capacity.others,
        "failing": capacity.failing,
        "shares": _by_key(capacity.shares),
        "turns": _by_key(capacity.turns),
        "platform": Jsonb(capacity.platform),
        "platforms": _by_key(capacity.platforms),
        "platform_turns": _by_key(capacity.platform_turns),
        "busy_endpoints": pg_arrays.uuids(busy_endpoints),
        "busy_subjects": pg_arrays.uuids(busy_subjects),
    }
    cursor.execute(_CLAIM, arguments)


def _by_key(values: Mapping[Id, int | PlatformShare]) -> Jsonb:
    return Jsonb({str(key): value for key, value in values.items()})
