"""The rows of `calendars` and `books`, and how a calendar is changed.

A version is never changed, so their number tells whether a reader has all of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog
from psycopg import AsyncConnection, Connection

from cardledger.ledger.books.business_days import Calendar, Calendars, Version

_COLUMNS: Final = "name, valid_from, time_zone, cut_off, days, holidays, created_at, created_by"
_log = structlog.get_logger()

_ALL: Final = f"SELECT {_COLUMNS} FROM calendars ORDER BY name, valid_from"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """A row of `calendars`."""

    name: str
    valid_from: date
    time_zone: str
    cut_off: time
    days: Sequence[int]
    holidays: Sequence[date]
    created_at: datetime
    created_by: str

    @property
    def version(self) -> Version:
        """The version as the rules use it.

        Raises: ZoneInfoNotFoundError when this process does not know its time zone.
        """
        calendar = Calendar(
            time_zone=ZoneInfo(self.time_zone),
            cut_off=self.cut_off,
            days=frozenset(self.days),
            holidays=frozenset(self.holidays),
        )
        return Version(name=self.name, valid_from=self.valid_from, calendar=calendar)


def read(connection: Connection[Any]) -> list[StoredVersion]:
    """Return all versions of all calendars, by name and date."""
    return [_stored(row) for row in connection.execute(_ALL)]


async def read_async(connection: AsyncConnection[Any]) -> list[StoredVersion]:
    """Do as `read` does, for an event loop."""
    return [_stored(row) async for row in await connection.execute(_ALL)]


def rules(versions: Collection[StoredVersion]) -> Calendars:
    """Return `versions` as the rules use them.

    One whose time zone this process does not know is left out, with an error in the log: what has
    happened at the network is recorded all the same, by the version or the calendar before it.
    """
    known: list[Version] = []
    for stored in versions:
        try:
            known.append(stored.version)
        except (ZoneInfoNotFoundError, ValueError) as error:
            _log.error(
                "calendar left out: unknown time zone; install the package tzdata",
                calendar=stored.name,
                valid_from=str(stored.valid_from),
                time_zone=stored.time_zone,
                error=str(error),
            )
    return Calendars(known)


class CachedCalendars:
    """The calendars of a process, read again when there are more versions; for several threads."""

    def __init__(self) -> None:
        self._cached: tuple[int, Calendars] = (0, Calendars())  # With the number of versions.

    def current(self, connection: Connection[Any], versions: int) -> Calendars:
        """Return all calendars, which have that number of `versions`; mostly from memory."""
        known, calendars = self._cached
        if known != versions:
            stored = read(connection)
            calendars = rules(stored)
            self._cached = (len(stored), calendars)
        return calendars


def _stored(row: Sequence[Any]) -> StoredVersion:
    columns = (name.strip() for name in _COLUMNS.split(","))
    values: Mapping[str, Any] = dict(zip(columns, row, strict=True))
    return StoredVersion(**values)


# --- a new version --------------------------------------------------------------------------------


class RefusedVersionError(Exception):
    """The version would change what may be posted already; its text says which date is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """A version to be added; without `valid_from`, from the first day that is possible."""

    name: str
    calendar: Calendar
    valid_from: date | None


_STATE: Final = """
    SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date, b.first_open_day,
        EXISTS (SELECT FROM calendars WHERE name = %(name)s),
        CASE %(name)s WHEN 'BOOKS' THEN EXISTS (SELECT FROM entries)
            ELSE EXISTS (SELECT FROM settlement_details WHERE network = %(name)s) END
    FROM books b
"""
_INSERT: Final = """
    INSERT INTO calendars (name, valid_from, time_zone, cut_off, days, holidays)
    VALUES (%s, %s, %s, %s, %s::smallint[], %s::date[]) ON CONFLICT DO NOTHING
"""


async def add(connection: AsyncConnection[Any], new: NewVersion) -> StoredVersion:
    """Add a version, and return it.

    Nothing that is posted moves: a version applies after today, but for the first one of a name
    that nothing was posted by.
    Raises: RefusedVersionError.
    """
    cursor = await connection.execute(_STATE, {"name": new.name})
    row = await cursor.fetchone()
    assert row is not None, "books has one row"
    today, first_open_day, has_versions, has_posted = row
    is_free = not has_versions and not has_posted
    earliest = first_open_day if is_free else today + timedelta(days=1)
    valid_from = new.valid_from or earliest
    if valid_from < earliest and not is_free:
        reason = "has a version" if has_versions else "has been used without one"
        raise RefusedVersionError(
            f"calendar {new.name} {reason}: a change must be valid from {earliest} or later, so"
            " that it moves nothing that is posted"
        )
    calendar = new.calendar
    inserted = await connection.execute(
        _INSERT,
        [
            new.name,
            valid_from,
            calendar.time_zone.key,
            calendar.cut_off,
            sorted(calendar.days),
            sorted(calendar.holidays),
        ],
    )
    if not inserted.rowcount:
        raise RefusedVersionError(
            f"calendar {new.name} has a version from {valid_from}, and a version is never changed;"
            " use another --valid-from"
        )
    versions = await read_async(connection)
    return next(
        stored for stored in versions if (stored.name, stored.valid_from) == (new.name, valid_from)
    )
