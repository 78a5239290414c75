"""Pages of long lists: the total is exact up to a limit, and counting stops there."""

import asyncio
import json
from typing import Any, Final

import psycopg
import pytest
from sqlalchemy import event, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.embedded.servers import DatabaseUrl
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id

_DEPOSITS: Final = select(tables.deposits.c.id)

_INSERT: Final = """
    INSERT INTO deposits (id, customer_id, account_id, amount, message_id, recorded_at, platform_id)
    SELECT gen_random_uuid(), %(platform)s, %(platform)s, 1, gen_random_uuid(), now(), %(platform)s
    FROM generate_series(1, %(count)s)
"""


@pytest.fixture(scope="module")
def platform_id() -> Id:
    """The one platform whose deposits are in the table."""
    return new_id()


def insert_deposits(url: DatabaseUrl, platform_id: Id, count: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_INSERT, {"platform": platform_id, "count": count})
        connection.execute("VACUUM ANALYZE deposits")


async def read(
    connection: AsyncConnection, platform_id: Id, *, count_limit: int | None = paging.COUNT_LIMIT
) -> paging.Page[Any]:
    return await paging.read(
        connection,
        _DEPOSITS,
        table=tables.deposits,
        matching=[tables.deposits.c.platform_id == platform_id],
        wanted=paging.Wanted(limit=20),
        item=lambda row: row.id,
        count_limit=count_limit,
    )


def page_of(
    url: DatabaseUrl, platform_id: Id, *, count_limit: int | None = paging.COUNT_LIMIT
) -> paging.Page[Any]:
    async def act() -> paging.Page[Any]:
        engine = async_engine(url)
        async with engine.connect() as connection:
            page = await read(connection, platform_id, count_limit=count_limit)
        await engine.dispose()
        return page

    return asyncio.run(act())


def test_a_total_is_exact_at_the_limit_and_absent_above_it(
    database_url: DatabaseUrl, platform_id: Id
) -> None:
    insert_deposits(database_url, platform_id, paging.COUNT_LIMIT)

    at_limit = page_of(database_url, platform_id)
    insert_deposits(database_url, platform_id, 1)
    above = page_of(database_url, platform_id)
    uncapped = page_of(database_url, platform_id, count_limit=None)

    assert (at_limit.total_count, len(at_limit.items)) == (10_000, 20)
    assert (above.total_count, len(above.items)) == (None, 20)
    assert above.last is not None
    assert uncapped.total_count == 10_001


def test_counting_reads_no_more_rows_than_the_limit_and_one(
    database_url: DatabaseUrl, platform_id: Id
) -> None:
    insert_deposits(database_url, platform_id, 30_000)

    plans = asyncio.run(analyzed(database_url, platform_id))

    assert len(plans) == 2
    for plan in plans:
        assert max(rows_of(plan)) <= paging.COUNT_LIMIT + 1


def test_a_page_without_a_total_takes_one_statement(
    database_url: DatabaseUrl, platform_id: Id
) -> None:
    insert_deposits(database_url, platform_id, 30)

    plans = asyncio.run(analyzed(database_url, platform_id, count_limit=0))

    assert len(plans) == 1
    assert page_of(database_url, platform_id, count_limit=0).total_count is None


async def analyzed(
    url: DatabaseUrl, platform_id: Id, *, count_limit: int | None = paging.COUNT_LIMIT
) -> list[dict[str, Any]]:
    """Return the executed plan of every statement that reading a page takes."""
    engine = async_engine(url)
    statements: list[tuple[str, Any]] = []
    event.listen(
        engine.sync_engine,
        "before_cursor_execute",
        lambda _connection, _cursor, statement, given, *_: statements.append((statement, given)),
    )
    async with engine.connect() as connection:
        await connection.execute(select(1))
        statements.clear()
        await read(connection, platform_id, count_limit=count_limit)
        raw = await connection.get_raw_connection()
        driver: psycopg.AsyncConnection[Any] = raw.driver_connection  # type: ignore[assignment]
        plans = []
        for statement, given in statements.copy():
            cursor = await driver.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + statement, given)
            row = await cursor.fetchone()
            assert row is not None
            [plan] = row[0] if isinstance(row[0], list) else json.loads(row[0])
            plans.append(plan["Plan"])
    await engine.dispose()
    return plans


def rows_of(plan: dict[str, Any]) -> list[float]:
    """Return how many rows each node of `plan` has read, those that its filter removed included."""
    read_rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return [read_rows, *(rows for child in plan.get("Plans", ()) for rows in rows_of(child))]


def test_the_total_of_merged_lists_is_known_only_up_to_the_limit() -> None:
    def page(total_count: int | None) -> paging.Page[Any]:
        return paging.Page(items=[], last=None, total_count=total_count)

    assert paging.total_of([page(3), page(4)]) == 7
    assert paging.total_of([page(6_000), page(4_000)]) == 10_000
    assert paging.total_of([page(6_000), page(4_001)]) is None
    assert paging.total_of([page(3), page(None)]) is None
    assert paging.total_of([]) == 0
