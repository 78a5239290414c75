"""The journal of a platform, the newest entries first: each debits one account, credits another.

Entries have no index by platform and time, which every batch would pay for. They are looked for in
spans of time, from the newest on, each wider than the one before it, until a page is full or some
time has passed; then the place that was reached is where the next page begins, with the span that
was reached. A span has a time limit. One that reaches it ends the page before it, and the next page
begins with a shorter one; the first span of a page is made shorter at once, and left out when even
the shortest takes too long. So every page ends at an earlier time than it begins.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    BindParameter,
    Executable,
    Row,
    TextClause,
    Uuid,
    bindparam,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.queries.console.entry_subjects import (
    COLUMNS,
    JOINS,
    Subject,
    event_of,
    subject_of,
)
from cardledger.ledger.storage.engines import is_cancelled
from cardledger.ledger.storage.places import Place
from cardledger.ledger.storage.snapshot_connections import limited
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import CURRENCIES, public_id

Kind = ChartAccount
"""The accounts of the chart; CUSTOMER: all accounts of customers and of the platform itself."""

_FIRST_SPAN: Final = timedelta(seconds=10)
_WIDER: Final = 4
_QUICK_S: Final = 0.1  # A span that took longer is not widened.
_TIME_S: Final = 0.6  # Of a page; the last span may take longer.
_SPAN_LIMIT_MS = 500
_NARROWER: Final = 100
_SHORTEST_SPAN: Final = timedelta(milliseconds=1)
PLACE_NUMBERS: Final = 3
"""The numbers of the place after which a page begins."""

_LAST: Final = (2**31 - 1, 2**15 - 1)  # No row of a moment comes after this sequence and line.
_MILLISECOND: Final = timedelta(milliseconds=1)
_LONGEST_SPAN: Final = timedelta(days=30)  # At the beginning of a page.
_LAST_ID: Final = Id(b"\xff" * 16)
_SYSTEM_ACCOUNTS: Final = (len(ChartAccount) - 1) * len(CURRENCIES)
"""All that a platform can have: of each kind but CUSTOMER, in each currency."""

_ID: Final = tables.entries.c.subject_id.type


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """An account of an entry: of the chart, and the public id of a customer's."""

    kind: str
    account: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A balanced movement of `amount` minor units of `currency`.

    `event` is that of the card transaction, or what else was booked. The numbers of its `place` are
    its sequence and its line.
    """

    place: Place
    recorded_at: datetime
    posted_on: str
    event: str
    subject: Subject
    debit: Side
    credit: Side
    amount: int
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFilters:
    """Conditions on entries; None matches every one. Times are inclusive."""

    since: datetime
    until: datetime
    kind: Kind | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of the journal; `next_after` is the place that the next one begins after.

    Its third number is the span of time that the next page begins with, in milliseconds.
    `reached` is the time back to which entries were looked for: all, when `next_after` is None.
    `unread` begins and ends a time at the end of the page whose entries could not be read.
    """

    entries: Sequence[Entry]
    next_after: Place | None
    reached: datetime
    unread: tuple[datetime, datetime] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Account:
    kind: str
    currency: str


_SPAN: Final = f"""
    SELECT e.recorded_at, e.line, e.posted_on, e.debit_account_id, e.credit_account_id, e.amount,
        {COLUMNS}
    FROM (
        SELECT recorded_at, subject_id, sequence, line, customer_id, posted_on, debit_account_id,
            credit_account_id, account_id, amount
        FROM entries
        WHERE recorded_at > :low AND recorded_at <= :high
            AND (recorded_at, subject_id, sequence, line) < (:high, :id, :sequence, :line)
            {{conditions}}
        ORDER BY recorded_at DESC, subject_id DESC, sequence DESC, line DESC LIMIT :limit
    ) e
    {JOINS}
    ORDER BY e.recorded_at DESC, e.subject_id DESC, e.sequence DESC, e.line DESC
"""
_OF_ACCOUNTS: Final = "(debit_account_id = ANY(:{0}) OR credit_account_id = ANY(:{0}))"
_BY_INDEX: Final = text(
    "SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"
)


async def page(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: JournalFilters,
    after: Place | None = None,
    limit: int,
) -> Page:
    """Return one page of the platform's journal, the newest first; `after` is a `next_after`."""
    await connection.execute(_BY_INDEX)  # A LIMIT makes PostgreSQL expect entries at the beginning.
    chart = await _chart(connection, platform_id)
    first, span = _beginning(after, filters)
    spans = _Spans(connection, *_statement(filters, chart), filters.since, span)
    found, end = list[Row[Any]](), monotonic() + _TIME_S
    reached, unread = first, None
    while reached.at > spans.floor and len(found) <= limit:
        if reached is not first and monotonic() > end:
            break
        low, rows = spans.low(reached), await spans.read(reached, limit=limit + 1 - len(found))
        if rows is None:
            is_shorter = spans.narrow()
            if reached is not first:
                break  # The next page begins here, with this span.
            if is_shorter:
                continue
            unread = (low, reached.at)
        found += rows or ()
        reached = Place(at=low, id=_LAST_ID, numbers=_LAST)
        spans.widen()
    entries = [_entry(row, chart) for row in found[:limit]]
    is_full = len(found) > limit
    following = entries[-1].place if is_full else reached
    return Page(
        entries=entries,
        next_after=spans.next_after(following) if is_full or reached.at > spans.floor else None,
        reached=reached.at,
        unread=unread,
    )


def _beginning(after: Place | None, filters: JournalFilters) -> tuple[Place, timedelta]:
    """Return the place that a page begins after, and its first span."""
    if after is None:
        return Place(at=filters.until, id=_LAST_ID, numbers=_LAST), _FIRST_SPAN
    *numbers, milliseconds = after.numbers
    return Place(at=after.at, id=after.id, numbers=tuple(numbers)), milliseconds * _MILLISECOND


class _Spans:
    """Spans of time in which entries are read, each ending where the one before it begins."""

    def __init__(
        self,
        connection: AsyncConnection,
        statement: TextClause,
        values: Sequence[BindParameter[Any]],
        since: datetime,
        span: timedelta,
    ) -> None:
        self._connection: Final = connection
        self._statement: Final = statement
        self._values: Final = values
        self._span = span
        self._took_s = 0.0
        self.floor: Final = since - timedelta(microseconds=1)  # The low end of a span is not in it.

    def low(self, place: Place) -> datetime:
        """Return where the span before `place` begins."""
        # Compared first: the time of a place less a long span may come before all times.
        if place.at - self.floor <= self._span:
            return self.floor
        return place.at - self._span

    async def read(self, place: Place, *, limit: int) -> Sequence[Row[Any]] | None:
        """Return the entries of the span before `place`; None: its time was over."""
        began = monotonic()
        rows = await _within_limit(
            self._connection,
            self._statement.bindparams(
                *self._values, *_between(self.low(place), place), bindparam("limit", limit)
            ),
        )
        self._took_s = monotonic() - began
        return rows

    def widen(self) -> None:
        """Make the next span longer, if the last one was quick."""
        if self._took_s < _QUICK_S:
            self._span *= _WIDER

    def narrow(self) -> bool:
        """Make the span shorter; False: it is the shortest."""
        if self._span <= _SHORTEST_SPAN:
            return False
        self._span = max(self._span / _NARROWER, _SHORTEST_SPAN)
        return True

    def next_after(self, place: Place) -> Place:
        """Return `place` as that after which a page begins, with the span of now."""
        span = min(self._span, _LONGEST_SPAN) // _MILLISECOND
        return replace(place, numbers=(*place.numbers, span))


async def _within_limit(
    connection: AsyncConnection, statement: Executable
) -> Sequence[Row[Any]] | None:
    """Return the rows of `statement`; None: its time was over."""
    try:
        async with limited(connection, _SPAN_LIMIT_MS):
            return (await connection.execute(statement)).all()
    except OperationalError as error:
        if not is_cancelled(error):
            raise
        return None


def _between(low: datetime, place: Place) -> list[BindParameter[Any]]:
    sequence, line = place.numbers
    return [
        bindparam("low", low, TIMESTAMP(timezone=True)),
        bindparam("high", place.at, TIMESTAMP(timezone=True)),
        bindparam("id", place.id, _ID),
        bindparam("sequence", sequence),
        bindparam("line", line),
    ]


def _statement(
    filters: JournalFilters, chart: Mapping[Id, _Account]
) -> tuple[TextClause, Sequence[BindParameter[Any]]]:
    """Return the statement of a span with the conditions, and the values of these."""
    conditions, values = [], []
    if filters.kind is Kind.CUSTOMER:
        # Not IS NOT NULL, by which PostgreSQL may read all of the index of statements.
        conditions.append("num_nonnulls(account_id) = 1")
    elif filters.kind is not None:
        conditions.append(_OF_ACCOUNTS.format("of_kind"))
        values.append(
            _ids("of_kind", [key for key, each in chart.items() if each.kind == filters.kind])
        )
    if filters.currency is not None:  # Every entry has an account of the chart on a side.
        conditions.append(_OF_ACCOUNTS.format("of_currency"))
        values.append(
            _ids(
                "of_currency",
                [key for key, each in chart.items() if each.currency == filters.currency],
            )
        )
    return text(_SPAN.format(conditions="".join(f" AND {each}" for each in conditions))), values


def _ids(name: str, keys: Collection[Id]) -> BindParameter[Any]:
    return bindparam(name, list(keys), ARRAY(Uuid))


async def _chart(connection: AsyncConnection, platform_id: Id) -> Mapping[Id, _Account]:
    """Return the platform's accounts of the chart."""
    columns = tables.system_accounts.c
    rows = await connection.execute(
        select(columns.id, columns.kind, columns.currency)
        .where(columns.platform_id == platform_id)
        .limit(_SYSTEM_ACCOUNTS)
    )
    return {row.id: _Account(kind=row.kind, currency=row.currency) for row in rows}


def _entry(row: Any, chart: Mapping[Id, _Account]) -> Entry:  # noqa: ANN401 - a row
    debit, credit = chart.get(row.debit_account_id), chart.get(row.credit_account_id)
    known = debit or credit
    assert known is not None, "an entry has an account of the chart on a side"
    accounts = [each.kind for each in (debit, credit) if each]
    return Entry(
        place=Place(at=row.recorded_at, id=row.subject_id, numbers=(row.sequence, row.line)),
        recorded_at=row.recorded_at,
        posted_on=row.posted_on.isoformat(),
        event=event_of(row, *accounts),
        subject=subject_of(row, *accounts),
        debit=_side(debit, row.debit_account_id),
        credit=_side(credit, row.credit_account_id),
        amount=row.amount,
        currency=known.currency,
    )


def _side(account: _Account | None, key: Id) -> Side:
    if account is None:
        return Side(kind=Kind.CUSTOMER, account=public_id("InternalAccount", key))
    return Side(kind=account.kind, account=None)
