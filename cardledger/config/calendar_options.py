"""The options of `cardledger calendar`, read from text; what is wrong says what to change."""

import re
from collections.abc import Iterable
from datetime import date, time
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from cardledger.config.errors import USAGE, CommandError

_NAMES: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NAME: Final = re.compile(r"[A-Z0-9][A-Z0-9_-]{0,63}")
_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]", re.ASCII)
_NO_ZONES: Final = frozenset({"Factory", "localtime", "posixrules"})  # Of the machine.
_HOLIDAYS_LIMIT: Final = 2_000  # Of one version: a century of them.
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def name(text: str) -> str:
    """Return `text` if it can be the name of a calendar.

    Raises: CommandError.
    """
    if not _NAME.fullmatch(text):
        raise _wrong(f"{text!r} is not the name of a network; write it in capitals, such as VISA")
    return text


def time_zone(text: str) -> ZoneInfo:
    """Return the time zone called `text`.

    Raises: CommandError.
    """
    if text in _NO_ZONES or text not in available_timezones():
        raise _wrong(f"--time-zone: {text!r} is not a time zone, such as America/New_York")
    return ZoneInfo(text)


def cut_off(text: str) -> time:
    """Return the local time in `text`.

    Raises: CommandError.
    """
    if not _TIME.fullmatch(text):
        raise _wrong(f"--cut-off: {text!r} is not a time from 00:00 to 23:59")
    return time.fromisoformat(text)


def days(text: str) -> frozenset[int]:
    """Return the days of the week in `text`, 1 (Monday) to 7: names and ranges, by commas.

    Raises: CommandError.
    """
    found: set[int] = set()
    for part in text.lower().split(","):
        first, separator, last = part.strip().partition("-")
        if first not in _NAMES or (separator and last not in _NAMES):
            raise _wrong(
                f"--days: {text!r} does not name days of the week; write mon-fri or mon,wed-fri"
            )
        begin = _NAMES.index(first)
        length = (_NAMES.index(last or first) - begin) % len(_NAMES) + 1
        found |= {(begin + place) % len(_NAMES) + 1 for place in range(length)}
    return frozenset(found)


def days_text(found: Iterable[int]) -> str:
    """Return days of the week as `days` reads them, days in a row as a range."""
    parts: list[list[int]] = []
    for day in sorted(found):
        if parts and parts[-1][-1] == day - 1:
            parts[-1].append(day)
        else:
            parts.append([day])
    return ",".join(
        _NAMES[part[0] - 1] + (f"-{_NAMES[part[-1] - 1]}" if len(part) > 1 else "")
        for part in parts
    )


def day(text: str, where: str) -> date:
    """Return the date in `text`.

    Raises: CommandError, which says `where` it is wrong.
    """
    if _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            pass
    raise _wrong(f"{where}: {text!r} is not a date of the form YYYY-MM-DD")


def holidays(path: Path) -> frozenset[date]:
    """Return the dates in the file at `path`, one a line; `#` begins a comment.

    Raises: CommandError.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(f"--holidays: {path} cannot be read: {error}") from None
    found: set[date] = set()
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        holiday = day(text, f"{path}:{number}")
        if holiday in found:
            raise _wrong(f"{path}:{number}: {holiday} is there twice")
        found.add(holiday)
    if not found:
        raise _wrong(f"--holidays: {path} has no date")
    if len(found) > _HOLIDAYS_LIMIT:
        raise _wrong(f"--holidays: {path} has {len(found):,} dates, more than {_HOLIDAYS_LIMIT:,}")
    return frozenset(found)


def _wrong(message: str) -> CommandError:
    return CommandError(message, code=USAGE)
