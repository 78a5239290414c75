"""The outbox: webhooks, written in the same database transaction as the change they report."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Insert

from cardledger.ledger.storage.ids import id_at
from cardledger.schema import tables
from cardledger.schema.ids import Id


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

    `at` is by PostgreSQL's clock, as that of the engine: webhooks of a resource are sent in the
    order of their ids. `sequence` is the version of the resource, for those that have one.
    For changes outside the engine, which inserts its own webhooks in bulk.
    """
    return tables.outbox.insert().values(
        id=id_at(at),
        customer_id=customer_id,
        platform_id=platform_id,
        type=type,
        subject_id=subject_id,
        sequence=sequence,
        data=data,
        recorded_at=at,
    )
