"""Business days and posting days: examples, and what holds for every calendar and moment."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.books.business_days import (
    BOOKS,
    DEFAULT,
    Calendar,
    Calendars,
    Version,
    business_day,
)
from cardledger.ledger.books.calendars import StoredVersion, rules
from cardledger.ledger.books.posting import Movement, PostingDays, posting_day

NEW_YORK: Final = ZoneInfo("America/New_York")
WEEKDAYS: Final = frozenset(range(1, 6))
VISA: Final = Calendar(time_zone=NEW_YORK, cut_off=time(17), days=WEEKDAYS)
# North and south of the equator, with half an hour, without daylight saving time, over the date
# line, and one whose clock is set forward at midnight.
ZONES: Final = (
    "UTC",
    "America/New_York",
    "America/Santiago",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Australia/Lord_Howe",
    "Europe/London",
    "Pacific/Auckland",
)

moments = st.integers(0, 33 * 365 * 24 * 3600).map(
    lambda seconds: datetime(2005, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)
# Near the hours at which clocks are changed, in most of the zones.
changes = st.builds(
    lambda year, month, day, minutes: (
        datetime(year, month, day, tzinfo=UTC) + timedelta(minutes=minutes)
    ),
    st.integers(2006, 2036),
    st.sampled_from([3, 4, 9, 10, 11]),
    st.integers(1, 28),
    st.integers(0, 24 * 60),
)
any_moment = moments | changes
calendars = st.builds(
    Calendar,
    time_zone=st.sampled_from(ZONES).map(ZoneInfo),
    cut_off=st.just(time()) | st.times().map(lambda at: at.replace(second=0, microsecond=0)),
    days=st.frozensets(st.integers(1, 7), min_size=1),
    holidays=st.frozensets(st.dates(date(2005, 1, 1), date(2037, 12, 31)), max_size=5),
)


def at(text: str, zone: ZoneInfo = NEW_YORK) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone)


def only(calendar: Calendar, name: str = BOOKS) -> Calendars:
    return Calendars([Version(name=name, valid_from=date.min, calendar=calendar)])


# --- business days --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "day"),
    [
        ("2026-10-14T16:59:59", "2026-10-14"),  # A Wednesday.
        ("2026-10-14T17:00:00", "2026-10-15"),
        ("2026-10-16T16:59:59", "2026-10-16"),
        ("2026-10-16T17:00:00", "2026-10-19"),  # Friday after the cut-off: Monday.
        ("2026-10-18T12:00:00", "2026-10-19"),
    ],
)
def test_a_movement_at_or_after_the_cut_off_belongs_to_the_next_day_that_settles(
    moment: str, day: str
) -> None:
    assert business_day(VISA, at(moment)) == date.fromisoformat(day)


def test_a_holiday_rolls_forward_and_only_the_dates_of_the_file_are_holidays() -> None:
    # The Federal Reserve settles on Friday 2026-07-03, although the 4th is a Saturday.
    calendar = Calendar(
        time_zone=NEW_YORK,
        cut_off=time(17),
        days=WEEKDAYS,
        holidays=frozenset({date(2026, 12, 25)}),
    )

    assert business_day(calendar, at("2026-12-24T18:00:00")) == date(2026, 12, 28)
    assert business_day(calendar, at("2026-07-03T09:00:00")) == date(2026, 7, 3)


def test_a_clock_that_is_set_back_passes_the_cut_off_once() -> None:
    calendar = Calendar(time_zone=NEW_YORK, cut_off=time(1, 30))
    first = datetime(2026, 11, 1, 5, 40, tzinfo=UTC)  # 01:40 daylight saving time.
    again = datetime(2026, 11, 1, 6, 10, tzinfo=UTC)  # 01:10 standard time.

    assert business_day(calendar, first) == business_day(calendar, again) == date(2026, 11, 2)


def test_a_cut_off_that_the_clock_skips_is_when_it_is_set_forward() -> None:
    calendar = Calendar(time_zone=NEW_YORK, cut_off=time(2, 30))
    change = datetime(2026, 3, 8, 7, tzinfo=UTC)

    assert business_day(calendar, change - timedelta(seconds=1)) == date(2026, 3, 8)
    assert business_day(calendar, change) == date(2026, 3, 9)


@given(calendars, any_moment)
def test_a_business_day_settles(calendar: Calendar, moment: datetime) -> None:
    day = business_day(calendar, moment)

    assert day.isoweekday() in calendar.days
    assert day not in calendar.holidays


@given(calendars, any_moment, st.timedeltas(timedelta(0), timedelta(hours=30)))
def test_a_later_movement_has_no_earlier_business_day(
    calendar: Calendar, moment: datetime, later: timedelta
) -> None:
    assert business_day(calendar, moment) <= business_day(calendar, moment + later)


@given(calendars, any_moment)
def test_a_business_day_is_the_first_that_settles_from_the_day_of_the_movement(
    calendar: Calendar, moment: datetime
) -> None:
    local = moment.astimezone(calendar.time_zone)
    day = business_day(calendar, moment)

    assert day >= local.date()
    passed = [local.date() + timedelta(days=n) for n in range((day - local.date()).days)]
    settling = [
        each
        for each in passed
        if each.isoweekday() in calendar.days and each not in calendar.holidays
    ]
    # At most the movement's own day settles before: it was over.
    assert settling in ([], [local.date()])
    if settling:
        assert calendar.cut_off != time()


@given(any_moment)
def test_without_a_calendar_a_business_day_is_a_day_in_utc(moment: datetime) -> None:
    assert Calendars().business_day("VISA", moment) == moment.date()
    assert Calendars().business_day(None, moment) == business_day(DEFAULT, moment)


@pytest.mark.parametrize("year", [1, 1969])
def test_a_time_before_there_were_networks_has_a_business_day(year: int) -> None:
    assert business_day(VISA, datetime(year, 1, 1, tzinfo=UTC)) == date(1970, 1, 1)


# --- versions -------------------------------------------------------------------------------------


def test_a_network_uses_the_newest_version_that_is_valid_then_the_books_then_the_default() -> None:
    tokyo = Calendar(time_zone=ZoneInfo("Asia/Tokyo"))
    found = Calendars(
        [
            Version(name="VISA", valid_from=date(2026, 11, 1), calendar=VISA),
            Version(name=BOOKS, valid_from=date(2026, 10, 1), calendar=tokyo),
            Version(name="VISA", valid_from=date(2026, 12, 1), calendar=DEFAULT),
        ]
    )
    october = datetime(2026, 10, 31, 23, 59, tzinfo=UTC)

    assert found.of("VISA", october) is tokyo
    assert found.of("VISA", october + timedelta(minutes=1)) is VISA
    assert found.of("VISA", datetime(2026, 12, 1, tzinfo=UTC)) is DEFAULT
    assert found.of("MASTERCARD", october) is tokyo
    assert found.of(None, datetime(2026, 9, 30, tzinfo=UTC)) is DEFAULT


# --- posting days ---------------------------------------------------------------------------------

OPEN_SINCE: Final = date(2026, 10, 1)
RECORDED: Final = at("2026-10-14T10:00:00")


@pytest.mark.parametrize(
    ("occurred", "settled", "posted", "late_from"),
    [
        ("2026-10-14T09:00:00", None, "2026-10-14", None),
        ("2026-10-13T18:00:00", None, "2026-10-14", None),
        ("2026-10-13T09:00:00", None, "2026-10-13", None),
        ("2026-10-14T09:00:00", "2026-10-13", "2026-10-13", None),
        # Never after the business day of recording.
        ("2026-10-14T09:00:00", "2026-10-15", "2026-10-14", None),
        ("2039-01-01T00:00:00", None, "2026-10-14", None),
        ("2039-01-01T00:00:00", "2039-01-01", "2026-10-14", None),
        # Never before the first open day.
        ("2026-09-30T09:00:00", None, "2026-10-01", "2026-09-30"),
        ("2026-10-14T09:00:00", "2026-09-01", "2026-10-01", "2026-09-01"),
        ("2019-06-07T09:00:00", None, "2026-10-01", "2019-06-07"),
    ],
)
def test_three_dates_give_the_posting_day(
    occurred: str, settled: str | None, posted: str, late_from: str | None
) -> None:
    movement = Movement(
        occurred_at=at(occurred),
        network="VISA",
        settlement_date=None if settled is None else date.fromisoformat(settled),
    )

    found = posting_day(
        only(VISA, "VISA"), movement, recorded_at=RECORDED, first_open_day=OPEN_SINCE
    )

    assert str(found.day) == posted
    assert found.late_from == (None if late_from is None else date.fromisoformat(late_from))


movements = st.builds(
    Movement,
    occurred_at=any_moment,
    network=st.none() | st.just("VISA"),
    settlement_date=st.none() | st.dates(date(2005, 1, 1), date(2037, 12, 31)),
)
open_days = st.dates(date(2005, 1, 1), date(2037, 12, 31))


@given(calendars, movements, any_moment, open_days)
def test_a_posting_day_is_open_and_no_later_than_the_day_of_recording_unless_that_is_closed(
    calendar: Calendar, movement: Movement, recorded_at: datetime, first_open_day: date
) -> None:
    known = only(calendar, "VISA")

    day, late_from = posting_day(
        known, movement, recorded_at=recorded_at, first_open_day=first_open_day
    )

    today = known.business_day(movement.network, recorded_at)
    assert first_open_day <= day <= max(today, first_open_day)
    assert (late_from is None) or late_from < day == first_open_day
    if movement.settlement_date and first_open_day <= movement.settlement_date <= today:
        assert day == movement.settlement_date


@given(calendars, any_moment, st.timedeltas(-timedelta(hours=3), timedelta(hours=3)), open_days)
def test_a_batch_posts_by_the_rule(
    calendar: Calendar, recorded_at: datetime, offset: timedelta, first_open_day: date
) -> None:
    known = Calendars(
        [
            Version(name=BOOKS, valid_from=date.min, calendar=calendar),
            Version(name=BOOKS, valid_from=date(2020, 6, 1), calendar=VISA),
        ]
    )
    days = PostingDays(known, recorded_at=recorded_at, first_open_day=first_open_day)
    movement = Movement(occurred_at=recorded_at + offset)

    expected = posting_day(known, movement, recorded_at=recorded_at, first_open_day=first_open_day)

    assert days.of_books(movement.occurred_at) == days.of(movement) == expected


def test_a_calendar_that_never_settles_again_rolls_forward_for_a_year() -> None:
    every_sunday = frozenset(date(2026, 1, 4) + timedelta(weeks=week) for week in range(1_000))
    never = Calendar(time_zone=ZoneInfo("UTC"), days=frozenset({7}), holidays=every_sunday)

    day = business_day(never, datetime(2026, 1, 4, tzinfo=UTC))

    assert day == date(2026, 1, 4) + timedelta(days=366)


def test_a_version_in_an_unknown_time_zone_is_left_out() -> None:
    def stored(name: str, time_zone: str, days: list[int]) -> StoredVersion:
        return StoredVersion(
            name=name,
            valid_from=date(2026, 1, 1),
            time_zone=time_zone,
            cut_off=time(),
            days=days,
            holidays=[],
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
            created_by="anna",
        )

    known = rules([stored(BOOKS, "UTC", [1]), stored("VISA", "Mars/Olympus", [2])])

    wednesday = datetime(2026, 1, 7, 12, tzinfo=UTC)
    assert known.business_day("VISA", wednesday) == date(2026, 1, 12)
