"""Rows of a query one page at a time, so that memory does not grow with their number."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from psycopg import Connection

_ROWS_PER_FETCH: Final = 2000


def stream(connection: Connection[Any], name: str, query: str) -> Iterator[Sequence[Any]]:
    """Yield the rows of `query` by a cursor `name` in the open database transaction."""
    with connection.cursor(name=f"stream_{name}") as cursor:
        cursor.itersize = _ROWS_PER_FETCH
        yield from cursor.execute(query.encode())
