"""Events in the database transaction of a Django project.

from cardledger_client.django import enqueue

with transaction.atomic():
    order.save()
    enqueue([event])
"""

from collections.abc import Iterable

from django.db import connections

from cardledger_client import sql
from cardledger_client.resources import Event, Lane

__all__ = ["enqueue"]


def enqueue(
    events: Iterable[Event],
    lane: Lane = "LIVE",
    *,
    using: str = "default",
    schema: str = "cardledger",
) -> int:
    """Enqueue `events` in the current transaction of the database `using`; return their number.

    Raises: as `cardledger_client.sql.enqueue`.
    """
    return sql.enqueue(connections[using], events, lane, schema=schema)
