"""Statements that insert rows as a worker would have written them, without one."""

from typing import Final

OUTCOMES: Final = (
    "INSERT INTO outcomes (customer_id, platform_id, source, reference, body_hash, message_id,"
    " outcome, recorded_at) SELECT %s, %s, 'visa', 'figures-' || n, '', %s, 'APPLIED', now()"
    " FROM generate_series(1, %s) AS n"
)
REJECTION: Final = (
    "INSERT INTO rejections (id, customer_id, platform_id, body, reason, recorded_at)"
    " VALUES (%s, %s, %s, '{}', 'MALFORMED', now())"
)
DELIVERY: Final = (
    "INSERT INTO webhook_deliveries (id, customer_id, platform_id, webhook_id, type, subject_id,"
    " body, state, attempts, created_at, delivered_at) SELECT id, %s, %s, id, 'TEST', id, '{}',"
    " 'DELIVERED', 1, now(), now() FROM (SELECT %s::uuid AS id) made"
)
INBOX: Final = (
    "INSERT INTO inbox (lane, shard, id, customer_id, platform_id, source, reference, body,"
    " body_hash, received_at) VALUES (0, 0, %s, %s, %s, 'visa', %s, '{}', '', now())"
)
