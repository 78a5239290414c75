"""Business days: which day of a network, or of the books, a moment belongs to.

Pure. A calendar has a time zone, a cut-off, the days of the week that settle, and holidays; its
versions follow each other by `valid_from`. Source: docs/decisions/0062-business-days.md
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

BOOKS: Final = "BOOKS"
"""The calendar of everything whose network is unknown or has no calendar."""

_DAY: Final = timedelta(days=1)
_LONGEST_CLOSURE: Final = 366  # Days.
_MIDNIGHT: Final = time()
_WEEK: Final = frozenset(range(1, 8))

# No network is as old, and near the year 1 a local time may not exist.
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """One version of a calendar; `days` are days of the week, 1 (Monday) to 7 (Sunday)."""

    time_zone: ZoneInfo
    cut_off: time = _MIDNIGHT
    days: frozenset[int] = _WEEK
    holidays: frozenset[date] = frozenset()


DEFAULT: Final = Calendar(time_zone=ZoneInfo("UTC"))
"""Calendar days in UTC: the books while they have no calendar."""


def business_day(calendar: Calendar, at: datetime) -> date:
    """Return the business day of `calendar` that `at` belongs to.

    At or after the cut-off it is the next day's; a day that does not settle rolls forward, for a
    year at most: a calendar without any later day is an error, and its movements are posted too.
    """
    at = max(at, _EARLIEST)
    local = at.astimezone(calendar.time_zone)
    day = local.date()
    if calendar.cut_off != _MIDNIGHT and _is_after_cut_off(calendar, at, local):
        day += _DAY
    for _ in range(_LONGEST_CLOSURE):
        if day.isoweekday() in calendar.days and day not in calendar.holidays:
            break
        day += _DAY
    return day


def _is_after_cut_off(calendar: Calendar, at: datetime, local: datetime) -> bool:
    # Where a clock is set back, it passes the cut-off twice: the first time counts.
    if local.time() >= calendar.cut_off:
        return True
    return at >= datetime.combine(local.date(), calendar.cut_off, calendar.time_zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A calendar as it applies to movements from `valid_from`, a date in UTC, on."""

    name: str
    valid_from: date
    calendar: Calendar


class Calendars:
    """All versions of all calendars."""

    def __init__(self, versions: Iterable[Version] = ()) -> None:
        newest_first = sorted(versions, key=lambda each: each.valid_from, reverse=True)
        by_name: dict[str, list[Version]] = {}
        for version in newest_first:
            by_name.setdefault(version.name, []).append(version)
        self._versions: Final[Mapping[str, Sequence[Version]]] = by_name

    def of(self, network: str | None, at: datetime) -> Calendar:
        """Return the calendar that applies to a movement of `network` at `at`."""
        if not self._versions:
            return DEFAULT
        day = max(at, _EARLIEST).astimezone(UTC).date()
        for name in (BOOKS,) if network is None else (network, BOOKS):
            for version in self._versions.get(name, ()):
                if version.valid_from <= day:
                    return version.calendar
        return DEFAULT

    def business_day(self, network: str | None, at: datetime) -> date:
        """Return the business day that a movement of `network` at `at` belongs to."""
        return business_day(self.of(network, at), at)
