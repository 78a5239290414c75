"""Bulk writes: one statement that inserts many rows, and one that updates them.

Names and types of columns are read off `cardledger.schema.tables`, once, at import. Rows are
tuples in the order of those columns.
"""

from collections.abc import Collection, Sequence
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

_CASTS: Final = {"json": "::json"}
"""How an array's value becomes that of a column, where PostgreSQL does not do so by itself."""

_COPY_TYPES: Final = {"uuid": COPIED_AS, "json": "text"}
"""How COPY sends a type, where not as itself: ids as bytes, JSON as text that is JSON already."""

_KEY: Final = ("id", "customer_id")

FEW_ROWS: Final = 128
"""Up to which an INSERT of arrays takes less time than the two round trips of a COPY."""


def type_of(column: Column[Any]) -> str:
    """Return PostgreSQL's name of the type of `column`."""
    return _TYPES[type(column.type)]


class BulkInsert:
    """One statement that inserts rows into a table, however many.

    A binary COPY costs least a row, and two round trips. An INSERT of arrays costs more a row, and
    no round trip in a pipeline, which cannot have a COPY.
    """

    def __init__(self, table: Table, *, without: Collection[str] = ()) -> None:
        """Write the columns of `table`, in their order, except those in `without`."""
        columns = [column for column in table.columns if column.name not in without]
        self._types: Final = [type_of(column) for column in columns]
        names = ", ".join(column.name for column in columns)
        values = ", ".join(
            f"u.{column.name}{_CASTS.get(type_of(column), '')}" for column in columns
        )
        places = ", ".join("%s" for _ in columns)
        self._copy: Final = f"COPY {table.name} ({names}) FROM STDIN (FORMAT BINARY)".encode()
        self._insert: Final = (
            f"INSERT INTO {table.name} ({names}) SELECT {values}"
            f" FROM unnest({places}) AS u ({names})"
        ).encode()
        # By number: psycopg would look up each name for every COPY.
        self._copy_types: Final = [
            adapters.types.get_oid(_COPY_TYPES.get(kind, kind)) for kind in self._types
        ]

    def write(self, connection: Connection[Any], rows: Collection[tuple[Any, ...]]) -> None:
        """Write `rows`: by an INSERT in a pipeline, else by a COPY; none: no statement.

        In a pipeline an error is raised by a later statement, or at the end.
        """
        if not rows:
            return
        if connection.pgconn.pipeline_status:
            connection.execute(self._insert, self._arrays(rows))
            return
        with connection.cursor() as cursor, cursor.copy(self._copy) as copy:
            copy.set_types(self._copy_types)
            write_row = copy.write_row
            for row in rows:
                write_row(row)

    async def write_async(
        self, connection: AsyncConnection[Any], rows: Collection[tuple[Any, ...]]
    ) -> None:
        """Write `rows`, for an event loop: a few by an INSERT, many by a COPY, none by nothing."""
        if not rows:
            return
        if len(rows) <= FEW_ROWS:
            await connection.execute(self._insert, self._arrays(rows))
            return
        async with connection.cursor() as cursor, cursor.copy(self._copy) as copy:
            copy.set_types(self._copy_types)
            for row in rows:
                await copy.write_row(row)

    def _arrays(self, rows: Collection[tuple[Any, ...]]) -> list[pg_arrays.Array]:
        return pg_arrays.columns(rows, *self._types)


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
