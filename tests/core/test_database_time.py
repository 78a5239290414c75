"""What a reading of PostgreSQL's clock says about it: two bounds, and its time between them."""

from datetime import UTC, datetime, timedelta
from functools import reduce

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


@given(
    readings=st.lists(st.tuples(st.floats(0, 60), seconds, seconds), min_size=1, max_size=12),
    ahead=st.integers(-10_000, 10_000),
)
def test_several_readings_show_as_much_as_the_best_of_them(
    readings: list[tuple[float, float, float]], ahead: int
) -> None:
    made, asked_at = [], 100.0
    for pause, to_server, back in readings:
        asked_at += pause
        read_at = asked_at + to_server
        made.append(Bounds(NOON + timedelta(seconds=read_at), asked_at, read_at + back))
        asked_at = read_at + back
    moment = NOON + timedelta(seconds=asked_at, milliseconds=ahead)
    shown_at = asked_at + ahead / 1000

    bounds = reduce(Bounds.narrowed, made)

    drift_s = 0.001 * (asked_at - made[0].sent_at)
    assert shown_at - drift_s - min(there for _, there, _ in readings) <= (
        bounds.reached_from(moment) + 1e-5
    )
    assert bounds.reached_from(moment) <= shown_at + 1e-5
    assert shown_at - 1e-5 < bounds.passed_from(moment)
    assert bounds.passed_from(moment) <= (
        shown_at + drift_s + min(back for *_, back in readings) + 0.02
    )


def test_a_slow_reading_makes_no_deadline_come_early() -> None:
    quick = Bounds(NOON, 100.0, 100.001)
    slow = Bounds(NOON + timedelta(seconds=5.8), 105.0, 105.81)
    in_a_second = NOON + timedelta(seconds=6.8)

    assert slow.reached_from(in_a_second) == 106.0
    assert quick.narrowed(slow).reached_from(in_a_second) > 106.79


def test_a_reading_after_the_clock_was_set_counts_alone() -> None:
    before = Bounds(NOON, 100.0, 100.001)
    after = Bounds(NOON - timedelta(hours=1), 105.0, 105.5)

    assert before.narrowed(after) == after
