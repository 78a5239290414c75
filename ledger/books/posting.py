"""On which day an entry is posted, from three dates: the network's, ours, and the open books'.

Pure. Source: docs/decisions/0061-three-dates.md
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple

from cardledger.ledger.books.business_days import Calendars

_LIVE: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """What decides on which day the entries of one message are posted."""

    occurred_at: datetime  # At the network, where it says so; else when the message was accepted.
    network: str | None = None  # If the message has settlement details.
    settlement_date: date | None = None  # The same.


class PostingDay(NamedTuple):
    """The day an entry is posted on; `late_from`: the day that was not open any more, if any."""

    day: date
    late_from: date | None


def posting_day(
    calendars: Calendars, movement: Movement, *, recorded_at: datetime, first_open_day: date
) -> PostingDay:
    """Return on which day the entries of `movement`, recorded at `recorded_at`, are posted.

    Its settlement date, else the business day on which it occurred; never after the business day
    on which it is recorded, and never before `first_open_day`.
    """
    network = movement.network
    today = calendars.business_day(network, recorded_at)
    if movement.settlement_date is not None:
        wanted = movement.settlement_date
    else:  # A time in the future is an error of the network's clock.
        wanted = calendars.business_day(network, min(movement.occurred_at, recorded_at))
    day = min(wanted, today)
    return PostingDay(max(day, first_open_day), day if day < first_open_day else None)


class PostingDays:
    """The posting days of one batch: of what is recorded at one time."""

    def __init__(
        self, calendars: Calendars, *, recorded_at: datetime, first_open_day: date
    ) -> None:
        self._calendars: Final = calendars
        self._recorded_at: Final = recorded_at
        self._first_open_day: Final = first_open_day
        # What occurred since then is of the business day of recording, by the calendar of books.
        self._since: Final = _since(calendars, recorded_at)
        self._today: Final = self.of(Movement(occurred_at=recorded_at))

    def of_books(self, occurred_at: datetime) -> PostingDay:
        """Return the posting day of a movement without settlement details."""
        if occurred_at >= self._since:
            return self._today  # Nearly all: they happened just now.
        return self.of(Movement(occurred_at=occurred_at))

    def of(self, movement: Movement) -> PostingDay:
        """Return the posting day of `movement`."""
        return posting_day(
            self._calendars,
            movement,
            recorded_at=self._recorded_at,
            first_open_day=self._first_open_day,
        )


def _since(calendars: Calendars, now: datetime) -> datetime:
    """Return a time before `now` from which on there is one business day of the books.

    A later moment has no earlier business day: between two of one day, all are of that day.
    """
    before = now - _LIVE
    is_same = calendars.of(None, before) is calendars.of(None, now) and calendars.business_day(
        None, before
    ) == calendars.business_day(None, now)
    return before if is_same else now
