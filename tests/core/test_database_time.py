"""What a reading of PostgreSQL's clock says about it: two bounds, and its time between them."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from cardledger.workers.client.database_clock import Bounds

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
seconds = st.floats(0, 2)


@given(to_server=seconds, back=seconds, ahead=st.integers(-10_000, 10_000))
def test_the_clock_shows_a_moment_between_the_bounds_however_long_the_reading_took(
    to_server: float, back: float, ahead: int
) -> None:
    sent_at = 100.0
    read_at = sent_at + to_server
    bounds = Bounds(NOON, sent_at, read_at + back)
    moment = NOON + timedelta(milliseconds=ahead)

    shown_at = read_at + ahead / 1000

    assert bounds.reached_from(moment) <= shown_at + 1e-6
    assert bounds.passed_from(moment) > shown_at
