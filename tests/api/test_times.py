"""Times as they come in, against PostgreSQL: what is accepted can be kept."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema.wire.common import Time

_TIME: TypeAdapter[datetime] = TypeAdapter(Time)
_NAIVE = st.one_of(
    st.datetimes(),
    st.datetimes(max_value=datetime(1, 1, 3)),  # noqa: DTZ001 - the zone is drawn
    st.datetimes(min_value=datetime(9999, 12, 29)),  # noqa: DTZ001 - the zone is drawn
)
_OFFSETS = st.integers(-24 * 60 + 1, 24 * 60 - 1) | st.sampled_from([-840, 840, -1439, 1439])


@pytest.fixture(scope="module")
def connection(postgres_url: DatabaseUrl) -> Iterator[psycopg.Connection]:
    options = "-c timezone=UTC"
    with psycopg.connect(postgres_url, autocommit=True, options=options) as opened:
        yield opened


@given(naive=_NAIVE, minutes=_OFFSETS)
def test_a_time_that_is_accepted_is_sent_and_stored(
    connection: psycopg.Connection, naive: datetime, minutes: int
) -> None:
    time = naive.replace(tzinfo=timezone(timedelta(minutes=minutes))).isoformat()
    try:
        accepted = _TIME.validate_python(time)
    except ValidationError:
        return

    sent = _TIME.dump_python(accepted, mode="json")
    row = connection.execute("SELECT %s::timestamptz, %s::timestamptz", [accepted, sent]).fetchone()

    assert sent.endswith("Z")
    assert accepted.tzinfo == UTC
    assert row == (accepted, accepted)
