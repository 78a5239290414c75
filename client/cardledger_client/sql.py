"""Events in the caller's own database transaction: they are submitted when it commits.

    from cardledger_client.sql import enqueue

    with Session(engine) as session, session.begin():
        session.add(order)
        enqueue(session, [event])

For connections to the database that holds the ledger, with a login that may call its function
`enqueue`. Outcomes are read later: by `Client.outcome`, or `SELECT cardledger.outcome(source,
reference)`. No library is imported before it is used.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from cardledger_client.batches import MAX_BYTES, MAX_EVENTS, encoded
from cardledger_client.resources import Event, Lane

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from psycopg import AsyncConnection as AsyncPsycopg
    from psycopg import Connection as Psycopg
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

__all__ = ["enqueue", "enqueue_async"]

_LIBRARIES: Final = frozenset({"sqlalchemy", "psycopg", "django"})
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)


def enqueue(
    connection: "Session | scoped_session[Any] | Connection | Psycopg[Any] | BaseDatabaseWrapper",
    events: Iterable[Event],
    lane: Lane = "LIVE",
    *,
    schema: str = "cardledger",
) -> int:
    """Enqueue `events` in the database transaction of `connection`; return how many they are.

    Nothing is submitted when that transaction is rolled back. With autocommit, each 10,000 events
    are a transaction of their own. `schema` is the PostgreSQL schema of the ledger.
    Raises: the driver's error; its SQLSTATE is 22023 for an event without `type`, `source` or
    `reference`, or of more than 64 KiB. What else is wrong with an event is its outcome.
    TypeError for another object, such as a connection for an event loop.
    """
    if _is_async(connection):
        raise TypeError(f"{_name_of(connection)} is for an event loop: await enqueue_async")
    execute = {"sqlalchemy": _by_sqlalchemy, "psycopg": _by_psycopg, "django": _by_django}[
        _library_of(connection)
    ]
    return sum(execute(connection, _function(schema), page, lane) for page in _pages(events))


async def enqueue_async(
    connection: ("AsyncSession | async_scoped_session[Any] | AsyncConnection | AsyncPsycopg[Any]"),
    events: Iterable[Event],
    lane: Lane = "LIVE",
    *,
    schema: str = "cardledger",
) -> int:
    """Do as `enqueue` does, with a connection for an event loop.

    Raises: as `enqueue`; TypeError for a connection that is not for an event loop.
    """
    library, function = _library_of(connection), _function(schema)
    if not _is_async(connection):
        raise TypeError(f"{_name_of(connection)} is not for an event loop: call enqueue")
    execute = _by_psycopg_async if library == "psycopg" else _by_sqlalchemy_async
    count = 0
    for page in _pages(events):
        count += await execute(connection, function, page, lane)
    return count


def _by_sqlalchemy(connection: Any, function: str, page: str, lane: Lane) -> int:  # noqa: ANN401
    from sqlalchemy import text  # noqa: PLC0415 - only for those who use it

    statement = text(f"SELECT {function}(CAST(:events AS jsonb), :lane)")
    count: int = connection.execute(statement, {"events": page, "lane": lane}).scalar_one()
    return count


async def _by_sqlalchemy_async(
    connection: Any,  # noqa: ANN401
    function: str,
    page: str,
    lane: Lane,
) -> int:
    from sqlalchemy import text  # noqa: PLC0415 - only for those who use it

    statement = text(f"SELECT {function}(CAST(:events AS jsonb), :lane)")
    count: int = (await connection.execute(statement, {"events": page, "lane": lane})).scalar_one()
    return count


def _by_psycopg(connection: Any, function: str, page: str, lane: Lane) -> int:  # noqa: ANN401
    from psycopg.rows import scalar_row  # noqa: PLC0415 - only for those who use it

    with connection.cursor(row_factory=scalar_row) as cursor:
        cursor.execute(f"SELECT {function}(%s::jsonb, %s)", [page, lane])
        count: int = cursor.fetchone()
    return count


async def _by_psycopg_async(
    connection: Any,  # noqa: ANN401
    function: str,
    page: str,
    lane: Lane,
) -> int:
    from psycopg.rows import scalar_row  # noqa: PLC0415 - only for those who use it

    async with connection.cursor(row_factory=scalar_row) as cursor:
        await cursor.execute(f"SELECT {function}(%s::jsonb, %s)", [page, lane])
        count: int = await cursor.fetchone()
    return count


def _by_django(connection: Any, function: str, page: str, lane: Lane) -> int:  # noqa: ANN401
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {function}(%s::jsonb, %s)", [page, lane])
        [count] = cursor.fetchone()
    return int(count)


def _pages(events: Iterable[Event]) -> Iterator[str]:
    """Yield `events` as JSON arrays that the function takes, each with at least one event."""
    part: list[str] = []
    size = 0
    for event in events:
        content = encoded(event).decode()
        if part and (len(part) == MAX_EVENTS or size + len(content) > MAX_BYTES):
            yield f"[{','.join(part)}]"
            part, size = [], 0
        part.append(content)
        size += len(content)
    if part:
        yield f"[{','.join(part)}]"


def _function(schema: str) -> str:
    """Return the name of the function in `schema`.

    Raises: ValueError.
    """
    if not _SCHEMA.fullmatch(schema):
        raise ValueError(f"{schema!r} is not the name of the schema of a ledger")
    return f"{schema}.enqueue"


def _library_of(connection: object) -> str:
    """Return the library that `connection` belongs to, or that its class extends.

    Raises: TypeError for any other object.
    """
    for base in type(connection).__mro__:
        library = base.__module__.partition(".")[0]
        if library in _LIBRARIES:
            return library
    raise TypeError(
        f"{_name_of(connection)} is not a connection or session of SQLAlchemy, psycopg or Django"
    )


def _is_async(connection: object) -> bool:
    return inspect.iscoroutinefunction(getattr(connection, "execute", None))


def _name_of(connection: object) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"
