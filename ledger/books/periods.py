"""Periods of the books: a month or a day, as people name them. Pure."""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from typing import Final

from typing_extensions import override

_MONTH: Final = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])", re.ASCII)
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Period:
    """The days from `first` to `last`."""

    first: date
    last: date

    @override
    def __str__(self) -> str:
        return str(self.last) if self.first == self.last else f"{self.first} to {self.last}"


def month(text: str) -> Period:
    """Return the month in `text`, such as 2026-10.

    Raises: ValueError.
    """
    found = _MONTH.fullmatch(text)
    if found is None or found[1] == "0000":
        raise ValueError(f"{text!r} is not a month of the form YYYY-MM, such as 2026-10")
    year, number = int(found[1]), int(found[2])
    return Period(date(year, number, 1), date(year, number, monthrange(year, number)[1]))


def day(text: str) -> Period:
    """Return the one day in `text`, such as 2026-10-31.

    Raises: ValueError.
    """
    try:
        found = date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        found = None
    if found is None:
        raise ValueError(f"{text!r} is not a day of the form YYYY-MM-DD, such as 2026-10-31")
    return Period(found, found)
