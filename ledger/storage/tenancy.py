"""Filters by ids that callers send, which may be of another platform."""

from typing import Any

from sqlalchemy import ScalarSelect, Table, select

from cardledger.schema.ids import Id


def own(table: Table, key: Id, *, platform_id: Id, column: str = "id") -> ScalarSelect[Any]:
    """Return the query of a column of the platform's row `key`: null when it has no such row.

    A condition on it is decided without reading further rows, for a foreign id as for an unknown
    one. With the id itself PostgreSQL may read all that the other platform has of it before it
    filters by platform, and the time of the response tells how much that is.
    """
    columns = table.alias().c  # Never correlated with a query that reads the same table.
    own_row = select(columns[column]).where(columns.id == key, columns.platform_id == platform_id)
    return own_row.scalar_subquery()
