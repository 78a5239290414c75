"""One snapshot of the books, from which a report and everything in its head is read.

The database transaction is REPEATABLE READ and READ ONLY, so that the days, sums and rows of a
report agree while the engine commits. Rows are streamed by COPY: memory does not grow with their
number, and PostgreSQL finds the next ones, with several processes, while others are written.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date, datetime, time
from itertools import islice
from typing import Any, Final
from zoneinfo import ZoneInfo

import psycopg
from psycopg import IsolationLevel

from cardledger.ledger.books.business_days import (
    BOOKS,
    Calendar,
    Calendars,
    Version,
    business_day,
)
from cardledger.ledger.projections.event_rows import StoredEvent
from cardledger.ledger.queries.report_definitions import Column, Kind, Report
from cardledger.schema import connections, finance, ids, location
from cardledger.schema.ids import Id

ROWS_PER_BATCH: Final = 2_000

Row = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a report is about: posted on or before `on` (and from `first`), known at `known`."""

    on: date
    known: datetime
    first: date | None = None
    platform: Id | None = None
    currency: str | None = None
    account: Id | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account that a statement may be about."""

    id: Id
    platform_id: Id
    kind: str
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An open database transaction, and what is true of all of it."""

    connection: psycopg.Connection[Any]
    schema: str  # Of the views of finance.
    database: str
    version: int
    at: datetime
    today: date  # The business day of the books at that time.
    time_zone: str  # Of the days of the books.
    decimals: Mapping[str, int]  # Of each currency.

    def rows(
        self, report: Report, scope: Scope, *, texts: bool, limit: int | None = None
    ) -> Generator[Sequence[Row]]:
        """Yield the rows of `report`, some thousand at a time, at most `limit`.

        With `texts`, ids, dates, times and decimals are text: days as 2026-10-31, times as
        2026-10-31T12:00:00.000000Z. Without, they are values of Python, ids excepted. Close it, if
        not at its end, before the snapshot is used for anything else.
        """
        statement, values = query(report, scope, texts=texts, limit=limit)
        copied = _in(self.schema, f"COPY ({statement}) TO STDOUT (FORMAT BINARY)")
        with self.connection.cursor() as cursor, cursor.copy(copied, values) as copy:
            copy.set_types([_type(column, texts=texts) for column in report.columns])
            rows = _with_integers(report.columns, copy.rows())
            while batch := list(islice(rows, ROWS_PER_BATCH)):
                yield batch

    def lines(self, report: Report, scope: Scope) -> Generator[Sequence[bytes]]:
        """Yield the rows of `report` as lines of CSV, which PostgreSQL writes, as `rows` does.

        Each is without its end. NULL is an empty field and empty text is two quotes.
        """
        statement, values = query(report, scope, texts=True)
        copied = _in(self.schema, f"COPY ({statement}) TO STDOUT (FORMAT CSV)")
        with self.connection.cursor() as cursor, cursor.copy(copied, values) as copy:
            lines = (bytes(line[:-1]) for line in copy)  # A message of the protocol is a row.
            while batch := list(islice(lines, ROWS_PER_BATCH)):
                yield batch

    def accounts(self, kind: str, scope: Scope) -> list[Account]:
        """Return the accounts of `kind` in `scope`."""
        statement = "SELECT account_id, platform_id, kind, currency FROM finance.accounts"
        conditions = ["kind = %(kind)s"]
        if scope.currency is not None:
            conditions.append("currency = %(currency)s")
        if scope.platform is not None:
            conditions.append("platform_id = %(platform)s")
        return self._accounts(
            f"{statement} WHERE {' AND '.join(conditions)} ORDER BY platform_id, currency LIMIT 20",
            asdict(scope) | {"kind": kind},
        )

    def account(self, key: Id) -> Account | None:
        """Return the account `key`, if it exists."""
        statement = (
            "SELECT account_id, platform_id, kind, currency FROM finance.accounts"
            " WHERE account_id = %(account)s"
        )
        return next(iter(self._accounts(statement, {"account": key})), None)

    def events(self, card_transaction: Id) -> tuple[str, Id, list[StoredEvent]] | None:
        """Return currency, platform and events of a card transaction; None if it has none."""
        rows = self.connection.execute(_in(self.schema, _EVENTS), [card_transaction]).fetchall()
        if not rows:
            return None
        return rows[0][0], rows[0][1], [StoredEvent(*row[2:]) for row in rows]

    def has_platform(self, key: Id) -> bool:
        """Return whether a platform has accounts in the books."""
        statement = "SELECT FROM finance.accounts WHERE platform_id = %s LIMIT 1"
        found = self.connection.execute(_in(self.schema, statement), [key])
        return found.fetchone() is not None

    def _accounts(self, statement: str, values: Mapping[str, object]) -> list[Account]:
        rows = self.connection.execute(_in(self.schema, statement), values)
        return [
            Account(id=key, platform_id=platform, kind=kind, currency=currency)
            for key, platform, kind, currency in rows
        ]


_EVENTS: Final = """
    SELECT e.currency, e.platform_id, e.event, e.amount, e.unfunded, e.final, e.reason, e.source,
        e.reference, e.occurred_at, e.recorded_at, c.merchant_amount, c.merchant_currency,
        c.billing_amount, c.rate
    FROM finance.events e LEFT JOIN finance.conversions c
        ON c.card_transaction_id = e.card_transaction_id AND c.sequence = e.sequence AND c.is_first
    WHERE e.card_transaction_id = %s ORDER BY e.sequence
"""


@contextmanager
def opened(url: str) -> Iterator[Snapshot]:
    """Yield a snapshot of the books in the database at `url`.

    Raises: psycopg.Error; UndefinedFunction or InvalidSchemaName when there is no schema `finance`,
    InsufficientPrivilege when the role may not read it.
    """
    with connections.connect(url, reply_limit_s=None) as connection:
        ids.register(connection.adapters)
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            # A report reads a period, however long it is; its rows may wait for who reads them.
            connection.execute(
                "SELECT set_config(name, value, true) FROM (VALUES ('statement_timeout', '0'),"
                " ('idle_in_transaction_session_timeout', '0'), ('timezone', 'UTC'))"
                " AS setting (name, value)"
            )
            schema = _schema_of(connection, url)
            row = connection.execute(
                _in(schema, "SELECT finance.version(), current_database(), clock_timestamp()")
            ).fetchone()
            assert row is not None
            version, database, at = row
            calendar = _calendar(connection, schema, at)
            currencies = _in(schema, "SELECT code, decimals FROM finance.currencies")
            yield Snapshot(
                connection=connection,
                schema=schema,
                database=database,
                version=version,
                at=at,
                today=business_day(calendar, at),
                time_zone=calendar.time_zone.key,
                decimals=dict(connection.execute(currencies).fetchall()),
            )


_CALENDARS: Final = """
    SELECT detail FROM finance.audit WHERE action = 'CALENDAR_SET' AND subject = 'BOOKS'
"""


def _calendar(connection: psycopg.Connection[Any], schema: str, at: datetime) -> Calendar:
    """Return the calendar of the books that applies at a time."""
    rows = connection.execute(_in(schema, _CALENDARS))
    return Calendars(_version(detail) for (detail,) in rows).of(None, at)


def _version(detail: Mapping[str, Any]) -> Version:
    """Return a version of the calendar of the books from the view of what was changed."""
    return Version(
        name=BOOKS,
        valid_from=date.fromisoformat(detail["validFrom"]),
        calendar=Calendar(
            time_zone=ZoneInfo(detail["timeZone"]),
            cut_off=time.fromisoformat(detail["cutOff"]),
            days=frozenset(detail["days"]),
            holidays=frozenset(map(date.fromisoformat, detail["holidays"])),
        ),
    )


def _schema_of(connection: psycopg.Connection[Any], url: str) -> str:
    """Return the schema of the views."""
    statement = f"SELECT {finance.find(location.name_in(url))}"
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return str(row[0])


def _in(schema: str, statement: str) -> bytes:
    """Return `statement`, which names the views as `finance.…`, for the schema that has them."""
    return statement.replace("finance.", f'"{schema}".').encode()


def query(
    report: Report, scope: Scope, *, texts: bool, limit: int | None = None
) -> tuple[str, dict[str, Any]]:
    """Return the statement of `report`, and the values of its parameters."""
    values = asdict(scope)
    conditions = [
        condition
        for parameter, condition in report.conditions.items()
        if values[parameter] is not None
    ]
    statement = (
        f"SELECT {', '.join(_expression(column, texts=texts) for column in report.columns)}"
        f" FROM {report.source} AS r"
        f" WHERE {' AND '.join(conditions) or 'true'} ORDER BY {report.order}"
        + ("" if limit is None else f" LIMIT {limit}")
    )
    # PostgreSQL cannot guess the type of a value that is NULL or used by a function alone.
    for name, cast in _CASTS.items():
        statement = statement.replace(f"%({name})s", f"%({name})s::{cast}")
    return statement, values


_CASTS: Final = {
    "on": "date",
    "first": "date",
    "known": "timestamptz",
    "platform": "uuid",
    "account": "uuid",
}


def _with_integers(columns: Sequence[Column], rows: Iterator[Row]) -> Iterator[Row]:
    """Return `rows` with sums as integers of any size; PostgreSQL has them as numeric."""
    places = [place for place, column in enumerate(columns) if column.kind is Kind.TOTAL]
    if not places:
        return rows

    def converted(row: Row) -> Row:
        values = list(row)
        for place in places:
            if values[place] is not None:
                values[place] = int(values[place])
        return values

    return map(converted, rows)


_TIME: Final = """to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
_TEXTS: Final = {
    Kind.DATE: "{}::text",
    Kind.TIME: _TIME,
    Kind.MAJOR: "{}::text",
    Kind.FRACTION: "{}::text",
}
_TYPES: Final = {
    Kind.DATE: "date",
    Kind.TIME: "timestamptz",
    Kind.MAJOR: "numeric",
    Kind.FRACTION: "numeric",
}


def _expression(column: Column, *, texts: bool) -> str:
    """Return SQL for the value of `column`; its name can be a word of SQL, such as `open`."""
    name = f'r."{column.name}"'
    if column.kind in {Kind.COUNT, Kind.MINOR}:
        return f"{name}::bigint"
    if column.kind is Kind.TOTAL:
        return f"{name}::numeric"
    if column.kind is Kind.ID:
        return f"{name}::text"
    return _TEXTS.get(column.kind, "{}").format(name) if texts else name


def _type(column: Column, *, texts: bool) -> str:
    """Return the type of PostgreSQL that `_expression` has."""
    if column.kind in {Kind.COUNT, Kind.MINOR}:
        return "int8"
    if column.kind is Kind.TOTAL:
        return "numeric"
    return "text" if texts else _TYPES.get(column.kind, "text")
