"""Bulk writes: COPY into a table, and one UPDATE of many of its rows.

Names and types of columns are read off `cardledger.schema.tables`, once, at import. Rows are
tuples in the order of those columns.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection, Connection, Cursor, adapters
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    Integer,
    LargeBinary,
    Numeric,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSON, TIMESTAMP

from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import COPIED_AS

_TYPES: Final[dict[type[Any], str]] = {
    BigInteger: "int8",
    Boolean: "bool",
    Date: "date",
    Integer: "int4",
    JSON: "json",
    LargeBinary: "bytea",
    Numeric: "numeric",
    SmallInteger: "int2",
    Text: "text",
    TIMESTAMP: "timestamptz",
    Uuid: "uuid",
}

_COPY_TYPES: Final = {"uuid": COPIED_AS, "json": "text"}
"""How COPY sends a type, where not as itself: ids as bytes, JSON as text that is JSON already."""

_KEY: Final = ("id", "customer_id")


def type_of(column: Column[Any]) -> str:
    """Return PostgreSQL's name of the type of `column`."""
    return _TYPES[type(column.type)]


class Copy:
    """Binary COPY into a table: one statement, however many rows."""

    def __init__(self, table: Table, *, without: Collection[str] = ()) -> None:
        """Write the columns of `table`, in their order, except those in `without`."""
        columns = [column for column in table.columns if column.name not in without]
        types = [type_of(column) for column in columns]
        names = ", ".join(column.name for column in columns)
        self._statement: Final = f"COPY {table.name} ({names}) FROM STDIN (FORMAT BINARY)".encode()
        # By number: psycopg would look up each name for every COPY.
        self._types: Final = [adapters.types.get_oid(_COPY_TYPES.get(kind, kind)) for kind in types]

    def write(self, connection: Connection[Any], rows: Collection[Sequence[Any]]) -> None:
        """Write `rows`; none: no statement."""
        if not rows:
            return
        with connection.cursor() as cursor, cursor.copy(self._statement) as copy:
            copy.set_types(self._types)
            write_row = copy.write_row
            for row in rows:
                write_row(row)

    async def write_async(
        self, connection: AsyncConnection[Any], rows: Iterable[Sequence[Any]]
    ) -> None:
        """Do as `write` does, for an event loop."""
        async with connection.cursor() as cursor, cursor.copy(self._statement) as copy:
            copy.set_types(self._types)
            for row in rows:
                await copy.write_row(row)


@dataclass(frozen=True, slots=True)
class SentUpdate:
    """An update that was sent, perhaps in a pipeline, and how many rows it has to change."""

    cursor: Cursor[Any]
    rows: int

    def check(self) -> None:
        """Assert that every row was there; after the pipeline."""
        changed = self.cursor.rowcount
        assert changed == self.rows, f"{changed} of {self.rows} rows were there"


class BulkUpdate:
    """One UPDATE of many rows of a table, each identified by its id and its customer."""

    def __init__(
        self,
        table: Table,
        columns: Sequence[str],
        *,
        only: str = "true",
        extra: Sequence[tuple[str, str]] = (),
        within: str = "{}",
    ) -> None:
        """Set `columns` where the condition `only` is true.

        `extra` are further values of each row, a name and a type, for the statement `within` which
        the update is executed.
        """
        types = [(name, type_of(table.c[name])) for name in (*_KEY, *columns)]
        types += extra
        self._types: Final = [kind for _, kind in types]
        update = f"""
            UPDATE {table.name} t SET {", ".join(f"{name} = u.{name}" for name in columns)}
            FROM unnest({", ".join("%s" for _ in types)}) AS u ({", ".join(n for n, _ in types)})
            WHERE {" AND ".join(f"t.{name} = u.{name}" for name in _KEY)} AND {only}
        """
        self._statement: Final = within.format(update).encode()

    def send(self, connection: Connection[Any], rows: Sequence[tuple[Any, ...]]) -> SentUpdate:
        """Update `rows`: of each the id, the customer, and the values in their order."""
        values = pg_arrays.columns(rows, *self._types)
        return SentUpdate(connection.execute(self._statement, values), len(rows))
