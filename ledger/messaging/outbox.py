"""The outbox: webhooks, written in the same database transaction as the change they report."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Insert, literal_column

from cardledger.schema import tables
from cardledger.schema.ids import Id

NEW_ID: Final = """(
    SELECT (lpad(to_hex(t.us / 1000), 12, '0')
        || '7' || lpad(to_hex(mod(t.us, 1000) * 4096 / 1000), 3, '0')
        || '8' || left(t.random, 12) || 'f' || right(t.random, 2))::uuid
    FROM (
        SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us,
            replace(gen_random_uuid()::text, '-', '') AS random
    ) t
)"""
"""The id of a webhook in SQL: a UUIDv7 of PostgreSQL's time, with no reserved ending.

That time is read when the statement runs, behind the locks of what the webhook is about: webhooks
are sent in the order of their ids, and the engine makes its ids in the same way (`ids_from`).
"""

_NEW_ID: Final = literal_column(NEW_ID, type_=tables.outbox.c.id.type)


def insert(  # noqa: PLR0913 - a row, by name
    *,
    type: str,  # noqa: A002 - the column's name
    subject_id: Id,
    customer_id: Id,
    platform_id: Id,
    data: Mapping[str, Any],
    at: datetime,
    sequence: int | None = None,
) -> Insert:
    """Return the statement that appends a webhook with `data`, the current resource.

    `sequence` is the version of the resource, for those that have one.
    For changes outside the engine, which inserts its own webhooks in bulk.
    """
    # Inline: without a RETURNING, for which workers have no right.
    return (
        tables.outbox.insert()
        .inline()
        .values(
            id=_NEW_ID,
            customer_id=customer_id,
            platform_id=platform_id,
            type=type,
            subject_id=subject_id,
            sequence=sequence,
            data=data,
            recorded_at=at,
        )
    )
