"""Closing and reopening periods, by the functions of the schema `finance` that people call.

PostgreSQL knows who calls (`session_user`), checks what each may do, and keeps who did what.
Source: docs/decisions/0070-closing-a-period.md
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

import psycopg
from psycopg.rows import class_row

from cardledger.ledger.books import seals
from cardledger.ledger.books.periods import Period
from cardledger.schema import connections, finance, ids, location
from cardledger.schema.ids import Id

_REFUSED: Final = "CL002"
_IN_THE_WAY: Final = "CL003"

_LOCK_LIMIT_S: Final = 30.0  # For which an approval tries to get the lock.
_PAUSE_S: Final = 0.2  # In which batches that waited behind the attempt go on.


class RefusedError(Exception):
    """PostgreSQL refuses it; its text says why and what to do."""


class InTheWayError(RefusedError):
    """Something is in the way that is not allowed (`Closings.in_the_way`)."""


class BusyError(Exception):
    """Another session kept a lock for too long; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is in the way of closing a period, and how to clear it."""

    kind: str
    found: int
    detail: str
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A closing or a reopening."""

    id: Id
    kind: str  # CLOSE or REOPEN
    first_day: date
    last_day: date
    state: str
    prepared_at: datetime
    prepared_by: str
    decided_at: datetime | None
    decided_by: str | None
    reason: str | None  # Why it is to be reopened, or why it was rejected.
    sealed_at: datetime | None
    entries: int | None
    sha256: str | None


_REQUESTS: Final = """
    SELECT closing_id AS id, 'CLOSE' AS kind, first_day, last_day, state, prepared_at, prepared_by,
        decided_at, decided_by, decision_reason AS reason, sealed_at, entries, sha256
    FROM finance.periods
    UNION ALL
    SELECT reopening_id, 'REOPEN', first_day, last_day, state, prepared_at, prepared_by,
        decided_at, decided_by, coalesce(decision_reason, reason), NULL, NULL, NULL
    FROM finance.reopenings
    ORDER BY prepared_at
"""


class Closings:
    """The periods of a database, for the login of `opened`."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection: Final = connection
        self._schema: Final = schema  # Of the views and functions of finance.

    def in_the_way(self, period: Period) -> list[Finding]:
        """Return what is in the way of closing the open days up to the last one of `period`."""
        statement = (
            "SELECT kind, found, detail, meaning, remedy"
            " FROM finance.in_the_way(finance.first_open_day(), %s)"
        )
        with self._connection.cursor(row_factory=class_row(Finding)) as cursor:
            return cursor.execute(self._in(statement), [period.last]).fetchall()

    def begin(self, first_day: date) -> None:
        """Let the books begin on `first_day`: movements of earlier days are posted on it.

        Raises: RefusedError when a period has been closed, or an entry would have another posting
        day; BusyError.
        """
        self._locking("begin_books(%s)", first_day)

    def prepare(self, period: Period, allowed: Mapping[str, str]) -> Id:
        """Prepare to close `period`; `allowed`, by kind, says why something may be in the way.

        Raises: RefusedError; InTheWayError when something else is in the way.
        """
        exceptions = [{"kind": kind, "reason": reason} for kind, reason in allowed.items()]
        made: Id = self._call(
            "prepare_closing(%s, %s, %s::jsonb)", period.first, period.last, json.dumps(exceptions)
        )
        return made

    def prepare_reopening(self, closing: Id, reason: str) -> Id:
        """Prepare to reopen the period of `closing`.

        Raises: RefusedError.
        """
        made: Id = self._call("prepare_reopening(%s, %s)", closing, reason)
        return made

    def approve(self, request: Id) -> str:
        """Close or reopen the period that another person has prepared; return the new state.

        A period that was closed and not sealed, because an approval was interrupted, is sealed.
        Raises: RefusedError, BusyError.
        """
        state: str = self._locking("approve_closing(%s)", request)
        return self._seal(request) if state == "APPROVED" else state

    def reject(self, request: Id, reason: str) -> str:
        """Reject what another person has prepared; return the new state.

        Raises: RefusedError, BusyError.
        """
        state: str = self._locking("reject_closing(%s, %s)", request, reason)
        return state

    def requests(self) -> list[Request]:
        """Return all closings and reopenings, oldest first."""
        with self._connection.cursor(row_factory=class_row(Request)) as cursor:
            return cursor.execute(self._in(_REQUESTS)).fetchall()

    def _seal(self, closing: Id) -> str:
        """Seal a closed period, in which nothing changes any more: no lock is needed."""
        statement = "SELECT first_day, last_day FROM finance.periods WHERE closing_id = %s"
        row = self._connection.execute(self._in(statement), [closing]).fetchone()
        assert row is not None, "it was approved"
        with self._connection.transaction():
            digest = seals.digest(self._connection, self._schema, Period(*row))
        state: str = self._call(
            "seal_closing(%s, %s, %s, %s)", closing, seals.VERSION, digest.sha256, digest.entries
        )
        return state

    def _locking(self, call: str, *values: object) -> Any:  # noqa: ANN401 - what the function returns
        """Do as `_call` does, again and again while a short wait for a lock fails."""
        deadline = time.monotonic() + _LOCK_LIMIT_S
        while True:
            try:
                return self._call(call, *values)
            except psycopg.errors.LockNotAvailable:
                if time.monotonic() > deadline:
                    raise BusyError(
                        "another session keeps its lock on the books: nothing was changed; see"
                        " pg_stat_activity, and try again"
                    ) from None
                time.sleep(_PAUSE_S)

    def _call(self, call: str, *values: object) -> Any:  # noqa: ANN401 - what the function returns
        try:
            row = self._connection.execute(self._in(f"SELECT finance.{call}"), values).fetchone()
        except psycopg.DatabaseError as error:
            message = error.diag.message_primary or ""
            if error.sqlstate == _IN_THE_WAY:
                raise InTheWayError(message) from None
            if error.sqlstate == _REFUSED:
                raise RefusedError(message) from None
            raise
        assert row is not None
        return row[0]

    def _in(self, statement: str) -> bytes:
        return statement.replace("finance.", f'"{self._schema}".').encode()


# Whatever is set for others: functions that close must see what was committed before their lock.
_SETTINGS: Final = """
    SELECT set_config(name, value, false) FROM (VALUES ('statement_timeout', '0'),
        ('default_transaction_isolation', 'read committed')) AS setting (name, value)
"""


@contextmanager
def opened(url: str) -> Iterator[Closings]:
    """Yield the periods of the database at `url`, for the login in it.

    Raises: psycopg.Error; UndefinedTable or UndefinedFunction when the schema is older,
    InsufficientPrivilege when the login may not do what is asked.
    """
    with connections.connect(url, reply_limit_s=None, autocommit=True) as connection:
        ids.register(connection.adapters)
        connection.execute(_SETTINGS)
        statement = f"SELECT {finance.find(location.name_in(url))}"
        row: Sequence[Any] | None = connection.execute(statement.encode()).fetchone()
        assert row is not None
        yield Closings(connection, str(row[0]))
