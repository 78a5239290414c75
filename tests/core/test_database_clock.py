"""What a process takes for the time of PostgreSQL, from readings that took time to arrive."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.storage import database_clock
from cardledger.ledger.storage.database_clock import Reading

START = datetime(2026, 1, 1, tzinfo=UTC)

# Milliseconds: from one reading to the question of the next, to PostgreSQL, and back.
READINGS = st.lists(
    st.tuples(st.integers(1, 60_000), st.integers(0, 5_000), st.integers(0, 5_000)),
    min_size=1,
    max_size=20,
)


def reading(asked_ms: int, there_ms: int, back_ms: int, *, offset: timedelta) -> Reading:
    """Return what is read of a clock that is `offset` ahead of the seconds since `START`."""
    answered_ms = asked_ms + there_ms
    return Reading(
        at=START + offset + timedelta(milliseconds=answered_ms),
        received_at=(answered_ms + back_ms) / 1000,
        took=timedelta(milliseconds=there_ms + back_ms),
    )


def readings_of(
    steps: Sequence[tuple[int, int, int]], *, start_ms: int = 0, offset: timedelta = timedelta(0)
) -> tuple[list[Reading], int]:
    """Return the readings, and the milliseconds at which the last has arrived."""
    made = []
    for pause, there, back in steps:
        asked_ms = start_ms + pause
        made.append(reading(asked_ms, there, back, offset=offset))
        start_ms = asked_ms + there + back
    return made, start_ms


@pytest.fixture
def elapsed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that have passed, the last of the list."""
    seconds = [0.0]
    monkeypatch.setattr(database_clock, "elapsed_s", lambda: seconds[-1])
    return seconds


def behind(kept: Reading, at_ms: int, *, offset: timedelta = timedelta(0)) -> timedelta:
    """Return how far `kept` is behind PostgreSQL's clock when so many milliseconds have passed."""
    true = START + offset + timedelta(milliseconds=at_ms)
    return true - (kept.at + timedelta(milliseconds=at_ms - kept.received_at * 1000))


@given(READINGS)
def test_the_time_is_behind_by_the_way_back_of_the_quickest_answer(
    steps: list[tuple[int, int, int]],
) -> None:
    readings, end_ms = readings_of(steps)

    kept = reduce(Reading.better, readings)

    quickest = timedelta(milliseconds=min(back for _, _, back in steps))
    assert abs(behind(kept, end_ms) - quickest) < timedelta(milliseconds=0.01)


@given(READINGS, READINGS, st.integers(-(10**9), 10**9))
def test_a_clock_that_was_set_is_told_to_within_a_round_trip(
    before: list[tuple[int, int, int]], after: list[tuple[int, int, int]], offset_ms: int
) -> None:
    offset = timedelta(milliseconds=offset_ms)
    former, end_ms = readings_of(before)
    latter, end_ms = readings_of(after, start_ms=end_ms, offset=offset)

    kept = reduce(Reading.better, latter, reduce(Reading.better, former))

    last = timedelta(milliseconds=after[-1][1] + after[-1][2])
    assert abs(behind(kept, end_ms, offset=offset)) < last + timedelta(milliseconds=0.01)


def test_a_reading_goes_on_with_the_time_that_passes(elapsed: list[float]) -> None:
    read = reading(0, 1, 1, offset=timedelta(0))

    elapsed.append(3600.0)

    assert read.now() == START + timedelta(hours=1, milliseconds=-1)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="a clock of Linux")
def test_time_passes_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    suspended = {time.CLOCK_BOOTTIME: 3600.0, time.CLOCK_MONOTONIC: 0}
    monkeypatch.setattr(time, "clock_gettime", suspended.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)

    assert database_clock.elapsed_s() == 3600.0
