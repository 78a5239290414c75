"""Filters by ids that callers send, which may be of another platform."""

from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, Table, any_, func, select

from cardledger.schema import tables
from cardledger.schema.ids import Id


def own(table: Table, key: Id, *, platform_id: Id, column: str = "id") -> ScalarSelect[Any]:
    """Return the query of a column of the platform's row `key`: null when it has no such row.

    A condition on it is decided without reading further rows, for a foreign id as for an unknown
    one. With the id itself PostgreSQL may read all that the other platform has of it before it
    filters by platform, and the time of the response tells how much that is.
    """
    columns = table.c
    own_row = select(columns[column]).where(columns.id == key, columns.platform_id == platform_id)
    return own_row.correlate(None).scalar_subquery()  # A query around may read the same table.


def is_of_customer(
    column: ColumnElement[Any], platform_customer_id: str, *, platform_id: Id
) -> ColumnElement[bool]:
    """Return the condition that `column` is a customer to whom the platform has given this id.

    They are an array, found first: with a join PostgreSQL may instead read all rows of the platform
    in their order, and ask of each whose it is.
    """
    columns = tables.customers.c
    keys = select(columns.id).where(
        columns.platform_id == platform_id, columns.platform_customer_id == platform_customer_id
    )
    return column == any_(func.array(keys.correlate(None).scalar_subquery()))
