"""The audit of closed periods: each seal that stands is made again from the entries.

A period that was reopened is not closed: its former seal says what it was, and is not compared.
Source: docs/decisions/0070-closing-a-period.md
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

from psycopg import Connection

from cardledger.ledger.books import seals
from cardledger.ledger.books.periods import Period
from cardledger.schema import finance
from cardledger.schema.ids import Id

_CLOSED: Final = """
    SELECT c.id, c.first_day, c.last_day, c.decided_at, s.version, s.sha256, s.entries,
        s.late_entries, s.trial_balance
    FROM closings c LEFT JOIN seals s ON s.closing_id = c.id
    WHERE c.kind = 'CLOSE' AND c.state IN ('APPROVED', 'SEALED') ORDER BY c.first_day
"""

_COUNTS: Final = """
    SELECT count(late_from), count(*) FILTER (WHERE recorded_at > %s)
    FROM entries WHERE posted_on BETWEEN %s AND %s
"""

_SUMS: Final = """
    SELECT m.posted_on, coalesce(d.kind, 'CUSTOMER'), coalesce(c.kind, 'CUSTOMER'),
        coalesce(d.currency, c.currency), m.amount
    FROM (
        SELECT posted_on, nullif(debit_account_id, account_id) AS debit_id,
            nullif(credit_account_id, account_id) AS credit_id, sum(amount) AS amount
        FROM entries WHERE posted_on <= %s GROUP BY 1, 2, 3
    ) m
    LEFT JOIN system_accounts d ON d.id = m.debit_id
    LEFT JOIN system_accounts c ON c.id = m.credit_id
"""

_DAYS: Final = """
    SELECT e.posted_on, count(*) FROM entries e
    JOIN books b ON e.posted_on >= b.first_open_day GROUP BY e.posted_on
"""

_Totals = dict[tuple[str, str], tuple[int, int]]  # Debits and credits by currency and account.


@dataclass(frozen=True, slots=True)
class _Closed:
    """A period that is closed; without a seal while its approval is not completed."""

    id: Id
    first_day: date
    last_day: date
    decided_at: datetime
    version: int | None
    sha256: str | None
    entries: int | None
    late_entries: int | None
    trial_balance: Sequence[Mapping[str, str]] | None

    @property
    def period(self) -> Period:
        return Period(self.first_day, self.last_day)


def open_days(connection: Connection[Any]) -> dict[date, int]:
    """Return the number of entries of each day that is not closed."""
    return dict(connection.execute(_DAYS).fetchall())


def differences(connection: Connection[Any]) -> Iterator[str]:
    """Yield what is wrong with closed periods and their seals."""
    closed = [_Closed(*row) for row in connection.execute(_CLOSED)]
    if not closed:
        return
    schema = _schema(connection)
    balances = _balances(connection, [each.last_day for each in closed])
    for each in closed:
        for problem in _problems(connection, schema, each, balances[each.last_day]):
            yield f"Period {each.period} (closing {each.id}): {problem}"


def _problems(
    connection: Connection[Any], schema: str, closed: _Closed, balance: _Totals
) -> Iterator[str]:
    row = connection.execute(
        _COUNTS, [closed.decided_at, closed.first_day, closed.last_day]
    ).fetchone()
    assert row is not None, "count(*) returns a row"
    late_entries, later = row
    if later:
        yield f"{later} entries were posted into it after it was closed"
    if closed.version is None:
        return
    if closed.version != seals.VERSION:
        yield f"its seal has version {closed.version}, which this release cannot compute"
        return
    found = seals.digest(connection, schema, closed.period)
    if found.entries != closed.entries:
        yield f"has {found.entries} entries; {closed.entries} were sealed"
    elif found.sha256 != closed.sha256:
        yield f"its entries were changed: SHA-256 {found.sha256}, sealed as {closed.sha256}"
    if late_entries != closed.late_entries:
        yield f"has {late_entries} late entries; {closed.late_entries} were sealed"
    sealed: _Totals = {
        (line["currency"], line["account"]): (int(line["debits"]), int(line["credits"]))
        for line in closed.trial_balance or ()
    }
    for key in sorted(sealed.keys() | balance.keys()):
        was, now = sealed.get(key, (0, 0)), balance.get(key, (0, 0))
        if was != now:
            yield (
                f"{key[1]} in {key[0]} has debits {now[0]} and credits {now[1]} at its last day;"
                f" {was[0]} and {was[1]} were sealed"
            )


def _balances(connection: Connection[Any], days: Sequence[date]) -> dict[date, _Totals]:
    """Return debits and credits at the end of each of `days`, which rise."""
    rows = sorted(connection.execute(_SUMS, [days[-1]]).fetchall(), key=lambda row: row[0])
    totals: _Totals = {}
    found: dict[date, _Totals] = {}
    place = 0
    for day in days:
        while place < len(rows) and rows[place][0] <= day:
            _, debit, credit, currency, amount = rows[place]
            on_debit_side, on_other = totals.get((currency, debit), (0, 0))
            totals[currency, debit] = on_debit_side + int(amount), on_other
            on_other, on_credit_side = totals.get((currency, credit), (0, 0))
            totals[currency, credit] = on_other, on_credit_side + int(amount)
            place += 1
        found[day] = dict(totals)
    return found


def _schema(connection: Connection[Any]) -> str:
    """Return the schema of the views of finance."""
    row = connection.execute("SELECT current_schema()").fetchone()
    assert row is not None
    found = connection.execute(f"SELECT {finance.find(row[0])}".encode()).fetchone()
    assert found is not None
    return str(found[0])
