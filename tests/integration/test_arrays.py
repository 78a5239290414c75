"""Arrays as they are sent: PostgreSQL reads back what was packed."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id
from tests.ids import IDS

_MIN64, _MAX64 = -(2**63), 2**63 - 1
_zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])
_times = st.datetimes(datetime(1900, 1, 1), datetime(2300, 1, 1), timezones=_zones)  # noqa: DTZ001 - the zones follow
_texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)


@pytest.fixture(scope="module")
def connection(postgres_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@given(
    st.lists(st.none() | IDS),
    st.lists(st.none() | _texts),
    st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)),
    st.lists(st.none() | st.integers(_MIN64, _MAX64)),
    st.lists(st.none() | st.booleans()),
    st.lists(st.none() | _times),
    st.lists(st.none() | st.decimals(-(10**12), 10**12, places=12)),
    st.lists(st.none() | st.dates()),
    st.lists(st.none() | st.binary(max_size=20)),
)
def test_postgresql_reads_back_what_was_packed(  # noqa: PLR0913, PLR0917 - one list a type
    connection: psycopg.Connection[tuple[object, ...]],
    uuids: list[Id | None],
    texts: list[str | None],
    integers: list[int | None],
    bigints: list[int | None],
    booleans: list[bool | None],
    times: list[datetime | None],
    numerics: list[Decimal | None],
    dates: list[date | None],
    byte_strings: list[bytes | None],
) -> None:
    sent = [
        pg_arrays.uuids(uuids),
        pg_arrays.texts(texts),
        pg_arrays.integers(integers),
        pg_arrays.bigints(bigints),
        pg_arrays.booleans(booleans),
        pg_arrays.times(times),
        pg_arrays.numerics(numerics),
        pg_arrays.dates(dates),
        pg_arrays.byte_strings(byte_strings),
    ]

    row = connection.execute("SELECT %s, %s, %s, %s, %s, %s, %s, %s, %s", sent).fetchone()

    assert row == (
        uuids,
        texts,
        integers,
        bigints,
        booleans,
        times,
        numerics,
        dates,
        byte_strings,
    )


def test_the_type_is_known_without_a_cast(
    connection: psycopg.Connection[tuple[object, ...]],
) -> None:
    row = connection.execute(
        "SELECT pg_typeof(%s)::text, pg_typeof(%s)::text",
        [pg_arrays.uuids([]), pg_arrays.times([])],
    ).fetchone()

    assert row == ("uuid[]", "timestamp with time zone[]")
