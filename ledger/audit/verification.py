"""The audit: derive roll-ups, entries and balances from the events and compare the stored rows.

It also proves that every accepted message was decided or waits, once (`acceptances`).

The audit reads one snapshot, so that it can run beside live traffic, and streams rows, so that
memory does not grow with the ledger. It shares the rules with the engine and nothing else: the
stored rows were written by INSERT, COPY and UPDATE, the expected ones come from `fold` and
`entries`.

It checks sums, references, ownership, posting days and the seals of closed periods. It cannot check
data that is stored only once: when the network says an event occurred, the name of a merchant,
which account of a cardholder a declined authorization was decided on, and what webhooks contained.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from psycopg import Connection, IsolationLevel
from sqlalchemy import Engine

from cardledger.ledger.audit import (
    acceptances,
    adjustments,
    books,
    payments,
    posting,
    seals,
    settlements,
    suspense,
    totals,
)
from cardledger.ledger.audit.streams import Grouped, Row, SystemAccounts, system_accounts_of
from cardledger.ledger.core.entries import ChartAccount, Entry, entries
from cardledger.ledger.projections import card_transaction_rows, history, unfinished_payments
from cardledger.ledger.projections.card_transaction import Identity
from cardledger.ledger.projections.event_rows import EventRow, from_row
from cardledger.ledger.storage import cursors
from cardledger.ledger.storage.engines import driver
from cardledger.schema.ids import Id

Progress = Callable[[int, int], None]
"""Called at intervals with the number of events folded and the number of all events."""

DIFFERENCE_LIMIT: Final = 100
"""Differences that a report describes; further ones are only counted."""

UNFINISHED_LIMIT: Final = 100
"""Payments that need the operator of which a report says so; `cardledger payments` lists all."""

_EVENTS_PER_PROGRESS_CALL: Final = 1000


@dataclass(slots=True)
class Report:
    """What was audited, and the differences between stored and expected rows."""

    began_at: datetime  # When its database transaction began, by PostgreSQL's clock.
    events: int = 0
    card_transactions: int = 0
    accounts: int = 0
    entries: int = 0
    deposits: int = 0
    transfers: int = 0
    messages: acceptances.Totals = field(default_factory=acceptances.Totals)
    open_days: dict[date, int] = field(default_factory=dict)  # Entries of each day still open.
    unfinished: list[str] = field(default_factory=list)  # Payments that need the operator.
    difference_count: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every stored row is the one that the events give."""
        return not self.difference_count

    def add_difference(self, description: str) -> None:
        """Count a difference, and describe it while there are fewer than `DIFFERENCE_LIMIT`."""
        self.difference_count += 1
        if len(self.differences) < DIFFERENCE_LIMIT:
            self.differences.append(description)


def verify(engine: Engine, progress: Progress | None = None) -> Report:
    """Compare stored roll-ups, entries and balances with a fold of every event.

    Raises: OperationalError when PostgreSQL is unavailable.
    """
    with engine.connect() as outer:
        connection = driver(outer)
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        try:
            with connection.transaction():
                return verify_in_transaction(connection, progress or (lambda _done, _total: None))
        finally:
            connection.isolation_level = None


def _began_at(connection: Connection[Any]) -> datetime:
    row = connection.execute("SELECT now()").fetchone()
    assert row is not None
    at: datetime = row[0]
    return at


def verify_in_transaction(connection: Connection[Any], progress: Progress) -> Report:
    """Do as `verify` does, in the open database transaction of `connection`."""
    report = Report(began_at=_began_at(connection))
    connection.execute("SET LOCAL statement_timeout = 0")
    report.accounts = _count(connection, "internal_accounts")
    report.deposits = _count(connection, "deposits")
    report.entries = _count(connection, "entries")
    report.transfers = _count(connection, "transfers")
    total = _count(connection, "card_transaction_events")
    system_accounts = system_accounts_of(connection)
    for record in _card_transactions(connection):
        report.card_transactions += 1
        _check_card_transaction(report, record, system_accounts)
        before, report.events = report.events, report.events + len(record.events)
        if before // _EVENTS_PER_PROGRESS_CALL != report.events // _EVENTS_PER_PROGRESS_CALL:
            progress(report.events, total)
    for description in acceptances.differences(connection, report.messages):
        report.add_difference(description)
    for check in (
        books,
        payments,
        posting,
        totals,
        suspense,
        adjustments,
        settlements,
        seals,
    ):
        for description in check.differences(connection):
            report.add_difference(description)
    report.open_days = seals.open_days(connection)
    stopped = unfinished_payments.find_sync(connection, limit=UNFINISHED_LIMIT)
    report.unfinished = [payment.sentence() for payment in stopped]
    if report.events != total:
        report.add_difference(f"{total - report.events} events have no card transaction")
    progress(total, total)
    return report


class _Record(NamedTuple):
    """What is stored about one card transaction."""

    stored: Row
    events: Sequence[Row]
    entries: Sequence[Row]
    conversions: Sequence[Row]


def _check_card_transaction(
    report: Report, record: _Record, system_accounts: SystemAccounts
) -> None:
    stored, events, stored_entries, conversions = record
    roll_up = card_transaction_rows.from_row(stored)
    name = f"CardTransaction:{roll_up.identity.id}"
    try:
        by_event = {sequence: history.conversion_of(rest) for sequence, *rest in conversions}
        folded = list(history.refold(roll_up, events, by_event))
        entry_rows = list(_expected_entries(roll_up.identity, events, system_accounts))
    except (ValueError, KeyError) as error:
        report.add_difference(f"{name}: its events cannot be folded: {error!r}")
        return
    if not folded:
        report.add_difference(f"{name}: has no events")
        return
    if events[0][1] != roll_up.identity.created_at:
        report.add_difference(f"{name}: created_at is not the time of its first event")
    columns = zip(
        card_transaction_rows.COLUMNS,
        stored,
        card_transaction_rows.to_row(folded[-1]),
        strict=False,
    )
    for column, actual, expected in columns:
        if actual != expected and not (
            column == "status" and actual in card_transaction_rows.stored_statuses(expected)
        ):
            report.add_difference(
                f"{name}: stored {column} is {actual}; its events give {expected}"
            )
    pairs = zip_longest(map(tuple, stored_entries), entry_rows)
    for number, (actual, expected) in enumerate(pairs, start=1):
        if actual != expected:
            report.add_difference(
                f"{name}: stored entry {number} is {actual}; its events give {expected}"
            )


def _expected_entries(
    identity: Identity, events: Iterable[Row], system_accounts: SystemAccounts
) -> Iterator[Row]:
    """Yield (sequence, line, debit, credit, amount) of every entry of `events`."""

    def account(role: ChartAccount) -> Id:
        if role is ChartAccount.CUSTOMER:
            return identity.account_id
        return system_accounts[identity.platform_id, identity.currency, role]

    def row(sequence: int, line: int, entry: Entry) -> Row:
        return (sequence, line, account(entry.debit), account(entry.credit), entry.amount)

    for sequence, (_, _, *columns) in enumerate(events, start=1):
        for line, entry in enumerate(entries(from_row(EventRow(*columns)))):
            yield row(sequence, line, entry)


_EVENTS: Final = """
    SELECT card_transaction_id, message_id, recorded_at, kind, amount, unfunded, final, reason
    FROM card_transaction_events ORDER BY card_transaction_id, sequence
"""

_ENTRIES: Final = """
    SELECT subject_id, sequence, line, debit_account_id, credit_account_id, amount
    FROM entries WHERE sequence > 0 ORDER BY subject_id, sequence, line
"""

_CONVERSIONS: Final = """
    SELECT card_transaction_id, sequence, merchant_amount, merchant_currency, billing_amount, rate
    FROM conversion_details ORDER BY card_transaction_id, sequence
"""

_ROLL_UPS: Final = f"""
    SELECT {", ".join(f"t.{column}" for column in card_transaction_rows.COLUMNS)},
        u.platform_customer_id
    FROM card_transactions t JOIN customers u ON u.id = t.customer_id ORDER BY t.id
"""


def _card_transactions(
    connection: Connection[Any],
) -> Iterator[_Record]:
    """Yield every card transaction with its events, entries and conversions, in ascending id."""
    events = Grouped(connection, "events", _EVENTS)
    stored_entries = Grouped(connection, "entries", _ENTRIES)
    conversions = Grouped(connection, "conversions", _CONVERSIONS)
    for row in cursors.stream(connection, "card_transactions", _ROLL_UPS):
        key = row[0]
        yield _Record(row, events.of(key), stored_entries.of(key), conversions.of(key))


def _count(connection: Connection[Any], table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None, "count(*) returns a row"
    count: int = row[0]
    return count
