"""Webhook deliveries of the past, written by SQL on the server.

Each is one that was sent, with its body and its attempts, as if it had been about another purchase:
so they are rows as the workers write them, but for what the body says. One of a hundred has failed.
"""

from typing import Any, Final

import psycopg

FAILED_EVERY: Final = 100

END: Final = "00000abc"
"""How their ids end: it has no meaning in the sandbox."""

# The times of the purchases, and their ids up to the version and what makes them rise.
_DELIVERIES: Final = f"""
    INSERT INTO webhook_deliveries (id, customer_id, platform_id, type, subject_id, sequence, body,
        state, attempts, last_status, created_at, delivered_at, webhook_id, endpoint_id,
        attempts_before)
    SELECT p.of_delivery, p.customer_id, s.platform_id, s.type, p.id, s.sequence, s.body,
        CASE WHEN has_failed THEN 'FAILED' ELSE s.state END, s.attempts,
        CASE WHEN has_failed THEN 500 ELSE s.last_status END, p.created_at,
        CASE WHEN NOT has_failed THEN p.created_at + (s.delivered_at - s.created_at) END,
        p.of_webhook, s.endpoint_id, s.attempts_before
    FROM (
        SELECT *, row_number() OVER (ORDER BY id) AS number,
            mod(row_number() OVER (ORDER BY id), {FAILED_EVERY}) = 0 AS has_failed,
            {{delivery}} AS of_delivery, {{webhook}} AS of_webhook
        FROM (
            SELECT id, customer_id, created_at, row_number() OVER (ORDER BY id) AS place,
                count(*) OVER () AS count
            FROM card_transactions WHERE platform_id = %(platform)s
        ) t
        WHERE mod(place * %(count)s, count) < %(count)s
    ) p
    JOIN (
        SELECT *, row_number() OVER (ORDER BY id) AS place, count(*) OVER () AS count
        FROM webhook_deliveries WHERE endpoint_id = %(endpoint)s AND state = 'DELIVERED'
    ) s ON s.place = 1 + mod(p.number, s.count)
    ORDER BY p.id
"""
_ATTEMPTS: Final = f"""
    INSERT INTO webhook_attempts (delivery_id, number, customer_id, attempted_at, duration_ms,
        status, response_head)
    SELECT id, number, customer_id, created_at, 12, last_status, ''
    FROM webhook_deliveries, generate_series(1, attempts) number
    WHERE endpoint_id = %(endpoint)s AND id::text LIKE '%%{END}'
    ORDER BY id, number
"""


def write(
    connection: psycopg.Connection[Any], *, platform: object, endpoint: object, count: int
) -> int:
    """Write `count` deliveries to an endpoint that has received some; return how many there are.

    Each is about another purchase of the platform, and these are spread over its purchases; so
    there are at most as many.
    """
    statement = _DELIVERIES.format(delivery=_id("delivery"), webhook=_id("webhook"))
    values = {"platform": platform, "endpoint": endpoint, "count": count}
    written = connection.execute(statement.encode(), values).rowcount
    connection.execute(_ATTEMPTS.encode(), values)
    return written


def _id(salt: str) -> str:
    """Return SQL for a UUIDv7 of the time of the purchase `id`."""
    digest = f"md5('{salt}' || id)"
    return (
        f"(left(id::text, 19) || '8' || substr({digest}, 1, 3) || '-'"
        f" || substr({digest}, 4, 4) || '{END}')::uuid"
    )
