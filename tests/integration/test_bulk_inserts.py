"""Bulk inserts: a COPY, and the INSERT of arrays that takes its place in a pipeline."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSON, TIMESTAMP

from cardledger.ledger.storage.bulk_writes import FEW_ROWS, BulkInsert
from cardledger.schema import ids
from tests.ids import IDS

_EVERY_TYPE = Table(
    "every_type",
    MetaData(),
    Column("id", Uuid),
    Column("text", Text),
    Column("json", JSON),
    Column("hash", LargeBinary),
    Column("small", SmallInteger),
    Column("number", Integer),
    Column("amount", BigInteger),
    Column("is_final", Boolean),
    Column("day", Date),
    Column("at", TIMESTAMP(timezone=True)),
    Column("rate", Numeric(24, 12)),
    Column("unused", Text),
)
_CREATE = """
    CREATE TEMPORARY TABLE every_type (id uuid, text text, json json, hash bytea, small smallint,
        number integer, amount bigint, is_final boolean, day date, at timestamptz,
        rate numeric(24, 12), unused text)
"""
_INSERT = BulkInsert(_EVERY_TYPE, without={"unused"})
_READ = """
    SELECT id, text, json::text, hash, small, number, amount, is_final, day, at, rate
    FROM every_type ORDER BY ctid
"""
_texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=9)
_rows = st.tuples(
    *(
        st.none() | values
        for values in (
            IDS,
            _texts,
            st.sampled_from(["null", "[]", '{"a": "\\u00e9", "a": 1}', '"{}"']),
            st.binary(max_size=9),
            st.integers(-(2**15), 2**15 - 1),
            st.integers(-(2**31), 2**31 - 1),
            st.integers(-(2**63), 2**63 - 1),
            st.booleans(),
            st.dates(),
            st.datetimes(datetime(1900, 1, 1), datetime(2300, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - the zone follows
            st.decimals(-(10**11), 10**11, places=12),
        )
    )
)

_Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def connection(postgres_url: str) -> Iterator[_Connection]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        ids.register(connection.adapters)
        connection.execute(_CREATE)
        yield connection


@given(st.lists(_rows, max_size=5))
def test_both_statements_write_the_same_rows(
    connection: _Connection, rows: list[tuple[Any, ...]]
) -> None:
    connection.execute("TRUNCATE every_type")

    _INSERT.write(connection, rows)
    copied = connection.execute(_READ).fetchall()
    with connection.pipeline():
        _INSERT.write(connection, rows)

    assert copied == rows
    assert connection.execute(_READ).fetchall() == [*rows, *rows]


def test_an_insert_in_a_pipeline_reports_its_error_at_the_end(connection: _Connection) -> None:
    out_of_range = (None, None, None, None, 2**15, *[None] * 6)
    pipeline = connection.pipeline()
    pipeline.__enter__()

    _INSERT.write(connection, [out_of_range])

    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        pipeline.__exit__(None, None, None)


@pytest.mark.parametrize("count", [1, FEW_ROWS, FEW_ROWS + 1])
def test_an_event_loop_writes_few_rows_and_many(postgres_url: str, count: int) -> None:
    row = (None, "a", "{}", b"b", 1, 2, 3, True, date(2026, 1, 1), None, Decimal(4))

    async def written() -> list[tuple[Any, ...]]:
        connecting = psycopg.AsyncConnection.connect(postgres_url, autocommit=True)
        async with await connecting as connection:
            await connection.execute(_CREATE)
            await _INSERT.write_async(connection, [row] * count)
            return await (await connection.execute(_READ)).fetchall()

    assert asyncio.run(written()) == [row] * count
