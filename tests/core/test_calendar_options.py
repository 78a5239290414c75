"""The options of `cardledger calendar`: what they mean, and what is wrong with them."""

from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.config import calendar_options
from cardledger.config.errors import CommandError


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("mon-fri", {1, 2, 3, 4, 5}),
        ("MON, wed", {1, 3}),
        ("fri-mon", {5, 6, 7, 1}),
        ("sun", {7}),
        ("mon-sun", {1, 2, 3, 4, 5, 6, 7}),
        ("tue-mon", {1, 2, 3, 4, 5, 6, 7}),
    ],
)
def test_days_of_the_week(text: str, days: set[int]) -> None:
    assert calendar_options.days(text) == days


@given(st.frozensets(st.integers(1, 7), min_size=1))
def test_days_are_read_as_they_are_written(days: frozenset[int]) -> None:
    assert calendar_options.days(calendar_options.days_text(days)) == days


@pytest.mark.parametrize("text", ["", ",", "mon-", "-fri", "monday", "mon-fri-sun", "1-5"])
def test_what_does_not_name_days_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="does not name days of the week"):
        calendar_options.days(text)


@pytest.mark.parametrize(
    "text", ["", "America/Nowhere", "localtime", "../../etc/passwd", "EST+5", "america/new_york"]
)
def test_an_unknown_time_zone_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not a time zone, such as America/New_York"):
        calendar_options.time_zone(text)


@pytest.mark.parametrize(
    "text", ["", "24:00", "5:00", "17", "17:00:00", "17:60", "\u0661\u0667:00"]
)
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not a time from 00:00 to 23:59"):
        calendar_options.cut_off(text)


@pytest.mark.parametrize("text", ["", "visa", "VISA EU", "VISA\n", "V" * 65])
def test_what_cannot_be_a_network_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not the name of a network"):
        calendar_options.name(text)


def file(folder: Path, text: str) -> Path:
    path = folder / "holidays.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_holidays_are_dates_one_a_line(tmp_path: Path) -> None:
    path = file(tmp_path, "﻿# 2026\r\n2026-12-25  # Christmas\r\n\r\n2026-01-01\r\n")

    assert calendar_options.holidays(path) == {date(2026, 1, 1), date(2026, 12, 25)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-12-25\n25.12.2026\n", ":2: '25.12.2026' is not a date of the form YYYY-MM-DD"),
        ("2026-02-29\n", ":1: '2026-02-29' is not a date"),
        ("2026-12-25\n2026-12-25\n", ":2: 2026-12-25 is there twice"),
        ("# none\n", "has no date"),
        (
            "".join(f"{date(1990, 1, 1) + timedelta(days=n)}\n" for n in range(2_001)),
            "has 2,001 dates, more than 2,000",
        ),
    ],
)
def test_what_is_wrong_with_a_file_of_holidays_is_said_with_its_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(CommandError) as refusal:
        calendar_options.holidays(file(tmp_path, text))

    assert problem in str(refusal.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"missing\.txt cannot be read"):
        calendar_options.holidays(tmp_path / "missing.txt")
