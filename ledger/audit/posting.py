"""The audit of dates: each entry is posted on the day that the rule gives, details match events.

What a calendar is has its versions, and what was known of them at a time is in `created_at`.
Source: docs/decisions/0061-three-dates.md
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.books import calendars
from cardledger.ledger.books.business_days import Calendars
from cardledger.ledger.books.posting import Movement, posting_day
from cardledger.ledger.storage import cursors

_COMMIT: Final = timedelta(minutes=1)
"""Within which a version of a calendar, or a closing, is committed after it was made."""

_KNOWN_LIMIT: Final = 16
"""Moments whose calendars are kept: entries come mostly in the order of their recording."""

_TRANSACTION: Final = timedelta(minutes=10)
"""Within which a database transaction of a release before schema 0038 recorded an entry."""

_DECISIONS: Final = """
    SELECT decided_at, first_day, CASE kind WHEN 'CLOSE' THEN last_day + 1 ELSE first_day END
    FROM closings WHERE state IN ('APPROVED', 'SEALED', 'REOPENED') ORDER BY decided_at
"""

_ENTRIES: Final = """
    SELECT e.subject_id, e.sequence, e.line, e.occurred_at, e.recorded_at, e.posted_on,
        e.late_from, f.occurred_at,
        coalesce(s.network, CASE e.sequence WHEN 0 THEN i.network END, b.network),
        coalesce(s.settlement_date, CASE e.sequence WHEN 0 THEN i.settlement_date END,
            b.posted_for),
        CASE e.sequence WHEN 1 THEN i.posted_on END
    FROM entries e
    LEFT JOIN card_transaction_events f ON f.card_transaction_id = e.subject_id
        AND f.sequence = e.sequence
    LEFT JOIN suspense_items i ON i.id = e.subject_id AND i.customer_id = e.customer_id
    LEFT JOIN settlement_details s ON s.message_id
        = coalesce(f.message_id, CASE e.sequence WHEN 1 THEN i.resolved_by END)
    LEFT JOIN settlement_bookings b ON b.id = e.subject_id
"""


def differences(connection: Connection[Any]) -> Iterator[str]:
    """Yield what is wrong with dates of entries and with settlement details."""
    rule = _Rule(connection)
    for row in cursors.stream(connection, "dates", _ENTRIES):
        problem = rule.problem(row)
        if problem:
            yield f"Entry {row[0]}/{row[1]}/{row[2]}: {problem}"
    for statement, description in _CHECKS:
        for row in connection.execute(statement):
            yield description.format(*row)


class _Rule:
    """The posting rule with what was known when an entry was recorded."""

    def __init__(self, connection: Connection[Any]) -> None:
        stored = sorted(calendars.read(connection), key=lambda version: version.created_at)
        self._stored: Final = stored
        self._created: Final = [version.created_at for version in stored]
        self._known: Final = lru_cache(_KNOWN_LIMIT)(self._first)
        self._first_open_days: Final = _FirstOpenDays(connection)

    def problem(self, row: Sequence[Any]) -> str | None:
        """Return what is wrong with the dates in `row`, if anything."""
        (
            *_,
            occurred_at,
            recorded_at,
            posted_on,
            late_from,
            event_occurred_at,
            network,
            settled_on,
            suspended_on,  # What is taken back of suspense is not posted before this day.
        ) = row
        if event_occurred_at not in {None, occurred_at} and not _is_default(
            occurred_at, recorded_at
        ):
            return f"occurred_at is {occurred_at}; its event occurred at {event_occurred_at}"
        movement = Movement(occurred_at=occurred_at, network=network, settlement_date=settled_on)
        expected = set(self._days(movement, recorded_at))
        if suspended_on is not None:
            # What resolved it may have been applied later than it was decided, with its details.
            by_time = Movement(occurred_at=occurred_at)
            expected |= set(self._days(by_time, recorded_at))
            expected = {max(day, suspended_on) for day in expected}
        days = " or ".join(map(str, sorted(expected)))
        if late_from is None:
            if posted_on in expected or self._was_late_before_it_was_said(posted_on, expected):
                return None
            return f"is posted on {posted_on}; its dates give {days}"
        if late_from not in expected:
            return f"is late from {late_from}; its dates give {days}"
        first_open = self._first_open_days.about(recorded_at)
        if late_from < posted_on and posted_on in first_open:
            return None
        days = " or ".join(map(str, sorted(first_open)))
        return f"is late from {late_from} and posted on {posted_on}; the first open day was {days}"

    def _days(self, movement: Movement, recorded_at: datetime) -> Iterator[date]:
        """Yield the days that the calendars give, known shortly before the recording, and then."""
        for known in {
            self._versions_at(recorded_at): None,
            self._versions_at(recorded_at - _COMMIT): None,
        }:
            yield posting_day(
                self._known(known), movement, recorded_at=recorded_at, first_open_day=date.min
            ).day

    def _first(self, versions: int) -> Calendars:
        """Return the rules of the first `versions` that were made."""
        return calendars.rules(self._stored[:versions])

    def _versions_at(self, moment: datetime) -> int:
        return bisect_right(self._created, moment)

    def _was_late_before_it_was_said(self, posted_on: date, days: Collection[date]) -> bool:
        """Return whether an entry can be one of a release before schema 0057, when none was closed.

        Those posted an earlier day on the first day of the books, and had no place to say so.
        """
        return posted_on == self._first_open_days.first and min(days) < posted_on


class _FirstOpenDays:
    """The first open day at any time: that of the beginning, then by closings and reopenings."""

    def __init__(self, connection: Connection[Any]) -> None:
        decisions = connection.execute(_DECISIONS).fetchall()
        row = connection.execute("SELECT first_open_day FROM books").fetchone()
        assert row is not None, "books has one row"
        self.first: Final[date] = decisions[0][1] if decisions else row[0]
        self._decided: Final[list[datetime]] = [at for at, _, _ in decisions]
        self._days: Final[list[date]] = [self.first, *(after for _, _, after in decisions)]

    def about(self, moment: datetime) -> set[date]:
        """Return the first open day shortly before `moment`, and then."""
        begin = bisect_right(self._decided, moment - _COMMIT)
        return set(self._days[begin : bisect_right(self._decided, moment) + 1])


def _is_default(occurred_at: datetime, recorded_at: datetime) -> bool:
    """Return whether `occurred_at` may be the column's default: the beginning of a transaction."""
    return recorded_at - _TRANSACTION <= occurred_at <= recorded_at


_CHECKS: Final = (
    (
        """
        SELECT d.id, d.occurred_at, e.occurred_at FROM deposits d
        JOIN entries e ON e.subject_id = d.id AND e.sequence = 0
        WHERE d.occurred_at <> e.occurred_at
        """,
        "Deposit {}: occurred at {}, its entry at {}",
    ),
    (
        """
        SELECT s.card_transaction_id, s.sequence FROM settlement_details s
        LEFT JOIN card_transactions t ON t.id = s.card_transaction_id
            AND t.customer_id = s.customer_id AND t.platform_id = s.platform_id
        LEFT JOIN card_transaction_events f ON f.card_transaction_id = s.card_transaction_id
            AND f.sequence = s.sequence AND f.message_id = s.message_id
            AND f.recorded_at = s.recorded_at
        LEFT JOIN card_transaction_events b ON b.card_transaction_id = s.card_transaction_id
            AND b.sequence = s.sequence - 1 AND b.message_id = s.message_id
        WHERE num_nulls(t.id, f.sequence) > 0 OR b.sequence IS NOT NULL
        """,
        "Settlement details {}/{}: do not belong to the first event of their message",
    ),
    (
        """
        SELECT message_id, count(*) FROM settlement_details
        GROUP BY message_id HAVING count(*) > 1
        """,
        "Message {}: has settlement details {} times instead of once",
    ),
)
