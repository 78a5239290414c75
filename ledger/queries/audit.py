"""The audit: derive roll-ups, entries and balances from the events and compare the stored rows.

It also proves that every accepted message was decided or waits (`acceptances`).

The audit reads one snapshot, so that it can run beside live traffic, and streams rows, so that
memory does not grow with the ledger. It shares the rules with the engine and nothing else: the
stored rows were written by COPY and UPDATE, the expected ones come from `fold` and `entries`.

It checks sums, references, ownership, posting days and the seals of closed periods. It cannot check
data that is stored only once: when the network says an event occurred, the name of a merchant,
which account of a cardholder a declined authorization was decided on, and what webhooks contained.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any, Final

from psycopg import Connection, IsolationLevel
from sqlalchemy import Engine

from cardledger.ledger.books import totals_audit
from cardledger.ledger.core.entries import ChartAccount, Entry, entries
from cardledger.ledger.core.transfer import DECIDED_BY_THE_LEDGER
from cardledger.ledger.projections import card_transaction_rows, history
from cardledger.ledger.projections.card_transaction import Identity
from cardledger.ledger.projections.event_rows import EventRow, from_row
from cardledger.ledger.queries import (
    acceptances,
    adjustment_audit,
    posting_audit,
    seal_audit,
    suspense_audit,
)
from cardledger.ledger.storage import cursors
from cardledger.ledger.storage.engines import driver
from cardledger.schema.ids import Id

Progress = Callable[[int, int], None]
"""Called at intervals with the number of events folded and the number of all events."""

DIFFERENCE_LIMIT: Final = 100
"""Differences that a report describes; further ones are only counted."""

_EVENTS_PER_PROGRESS_CALL: Final = 1000

_Row = Sequence[Any]
_SystemAccounts = dict[tuple[Id, str, str], Id]


@dataclass(slots=True)
class Report:
    """What was audited, and the differences between stored and expected rows."""

    events: int = 0
    card_transactions: int = 0
    accounts: int = 0
    entries: int = 0
    deposits: int = 0
    transfers: int = 0
    accepted: int = 0  # Messages, from the first acceptance on.
    waiting: int = 0  # Of them, those not yet decided.
    open_days: dict[date, int] = field(default_factory=dict)  # Entries of each day still open.
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


def verify_in_transaction(connection: Connection[Any], progress: Progress) -> Report:
    """Do as `verify` does, in the open database transaction of `connection`."""
    report = Report()
    connection.execute("SET LOCAL statement_timeout = 0")
    report.accounts = _count(connection, "internal_accounts")
    report.deposits = _count(connection, "deposits")
    report.entries = _count(connection, "entries")
    report.transfers = _count(connection, "transfers")
    total = _count(connection, "card_transaction_events")
    system_accounts = _system_accounts(connection)
    for stored, events, stored_entries in _card_transactions(connection):
        report.card_transactions += 1
        _check_card_transaction(report, stored, events, stored_entries, system_accounts)
        before, report.events = report.events, report.events + len(events)
        if before // _EVENTS_PER_PROGRESS_CALL != report.events // _EVENTS_PER_PROGRESS_CALL:
            progress(report.events, total)
    for statement, description in _CHECKS:
        for row in connection.execute(statement):
            report.add_difference(description.format(*row))
    report.accepted, report.waiting = acceptances.totals(connection)
    for description in acceptances.differences(connection):
        report.add_difference(description)
    for check in (posting_audit, totals_audit, suspense_audit, adjustment_audit, seal_audit):
        for description in check.differences(connection):
            report.add_difference(description)
    report.open_days = seal_audit.open_days(connection)
    if report.events != total:
        report.add_difference(f"{total - report.events} events have no card transaction")
    progress(total, total)
    return report


def _check_card_transaction(
    report: Report,
    stored: _Row,
    events: Sequence[_Row],
    stored_entries: Sequence[_Row],
    system_accounts: _SystemAccounts,
) -> None:
    roll_up = card_transaction_rows.from_row(stored)
    name = f"CardTransaction:{roll_up.identity.id}"
    try:
        folded = list(history.refold(roll_up, events))
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
        if actual != expected:
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
    identity: Identity, events: Iterable[_Row], system_accounts: _SystemAccounts
) -> Iterator[_Row]:
    """Yield (sequence, line, debit, credit, amount) of every entry of `events`."""

    def account(role: ChartAccount) -> Id:
        if role is ChartAccount.CUSTOMER:
            return identity.account_id
        return system_accounts[identity.platform_id, identity.currency, role]

    def row(sequence: int, line: int, entry: Entry) -> _Row:
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

_ROLL_UPS: Final = f"""
    SELECT {", ".join(f"t.{column}" for column in card_transaction_rows.COLUMNS)},
        u.platform_customer_id
    FROM card_transactions t JOIN customers u ON u.id = t.customer_id ORDER BY t.id
"""


def _card_transactions(
    connection: Connection[Any],
) -> Iterator[tuple[_Row, list[_Row], list[_Row]]]:
    """Yield every card transaction with its events and its entries, in ascending id."""
    events = _Grouped(connection, "events", _EVENTS)
    stored_entries = _Grouped(connection, "entries", _ENTRIES)
    for row in cursors.stream(connection, "card_transactions", _ROLL_UPS):
        yield row, events.of(row[0]), stored_entries.of(row[0])


class _Grouped:
    """Rows of a stream grouped by their first column, read in ascending order of that column."""

    def __init__(self, connection: Connection[Any], name: str, query: str) -> None:
        rows = cursors.stream(connection, name, query)
        self._groups = groupby(rows, key=itemgetter(0))
        self._ahead: tuple[Id, list[_Row]] | None = None

    def of(self, key: Id) -> list[_Row]:
        """Return the other columns of the rows of `key`; rows of lower keys are skipped."""
        while self._ahead is None or self._ahead[0] < key:
            group = next(self._groups, None)
            if group is None:
                return []
            self._ahead = group[0], [row[1:] for row in group[1]]
        return self._ahead[1] if self._ahead[0] == key else []


def _system_accounts(connection: Connection[Any]) -> _SystemAccounts:
    rows = connection.execute("SELECT platform_id, currency, kind, id FROM system_accounts")
    return {(platform, currency, kind): key for platform, currency, kind, key in rows}


def _count(connection: Connection[Any], table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None, "count(*) returns a row"
    count: int = row[0]
    return count


_LEDGER_FAILURES: Final = ", ".join(f"'{reason}'" for reason in sorted(DECIDED_BY_THE_LEDGER))

# Each statement returns the rows that are wrong, none when all is well; the text describes a row.
_CHECKS: Final = (
    (
        """
        SELECT a.id, a.balance, a.version, coalesce(m.total, 0), coalesce(m.number, 0)
        FROM internal_accounts a LEFT JOIN (
            SELECT account_id, count(*) AS number,
                   sum(CASE credit_account_id WHEN account_id THEN amount ELSE -amount END) AS total
            FROM entries WHERE account_id IS NOT NULL GROUP BY account_id
        ) m ON m.account_id = a.id
        WHERE (a.balance, a.version) <> (coalesce(m.total, 0), coalesce(m.number, 0))
        """,
        "InternalAccount:{}: stored balance is {} at version {}; its entries give {} at version {}",
    ),
    (
        """
        SELECT a.id, a.held, a.owed, a.pending,
               coalesce(t.held, 0), coalesce(t.owed, 0), coalesce(t.pending, 0)
        FROM internal_accounts a LEFT JOIN (
            SELECT account_id, sum(greatest(ahead, 0)) AS held,
                   sum(greatest(-ahead, 0) + unpaid) AS owed, sum(pending) AS pending
            FROM card_transactions CROSS JOIN LATERAL (
                SELECT pulled - released - settled + (written_off - debits_written_off) AS ahead
            ) a
            GROUP BY account_id
        ) t ON t.account_id = a.id
        WHERE (a.held, a.owed, a.pending)
            <> (coalesce(t.held, 0), coalesce(t.owed, 0), coalesce(t.pending, 0))
        """,
        "InternalAccount:{}: held {}, owed {}, pending {}; its card transactions give {}, {}, {}",
    ),
    (
        """
        SELECT account_id, account_version, balance_after, running FROM (
            SELECT account_id, account_version, balance_after,
                   sum(CASE WHEN credit_account_id = account_id THEN amount ELSE -amount END)
                       OVER w AS running,
                   row_number() OVER w AS number
            FROM entries WHERE account_id IS NOT NULL
            WINDOW w AS (PARTITION BY account_id ORDER BY account_version)
        ) e WHERE running <> balance_after OR number <> account_version
        """,
        "InternalAccount:{}: entry {} records a balance of {}; the entries up to it give {}",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        WHERE account_id IS DISTINCT FROM (
            SELECT a.id FROM internal_accounts a
            WHERE a.id IN (e.debit_account_id, e.credit_account_id)
        )
        """,
        "Entry {}/{}/{}: account_id is not the customer account that the entry debits or credits",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        LEFT JOIN card_transactions t ON t.id = e.subject_id AND e.sequence > 0
        LEFT JOIN deposits d ON d.id = e.subject_id AND e.sequence = 0
        LEFT JOIN transfers f ON f.id = e.subject_id AND e.sequence = 0
        LEFT JOIN suspense_items i ON i.id = e.subject_id
        LEFT JOIN adjustments j ON j.id = e.subject_id AND e.sequence = 0
        WHERE t.id IS NULL AND d.id IS NULL AND f.id IS NULL AND i.id IS NULL AND j.id IS NULL
        """,
        "Entry {}/{}/{}: has no card transaction, deposit, transfer, suspense item or adjustment",
    ),
    (
        """
        SELECT d.id, d.amount, count(e.*) FROM deposits d
        LEFT JOIN (
            entries e JOIN system_accounts s
            ON s.id = e.debit_account_id AND s.kind = 'SANDBOX_FUNDING'
        ) ON e.subject_id = d.id AND e.credit_account_id = d.account_id AND e.amount = d.amount
        GROUP BY d.id, d.amount HAVING count(e.*) <> 1
        """,
        "Deposit {}: {} minor units, posted {} times instead of once",
    ),
    (
        """
        SELECT e.subject_id, count(*) FROM entries e JOIN deposits d ON d.id = e.subject_id
        WHERE e.sequence = 0 GROUP BY e.subject_id HAVING count(*) <> 1 OR max(e.line) <> 0
        """,
        "Deposit {}: has {} entries instead of one",
    ),
    (
        """
        SELECT d.id FROM deposits d LEFT JOIN internal_accounts a ON a.id = d.account_id
        WHERE a.id IS NULL OR (a.customer_id, a.platform_id) <> (d.customer_id, d.platform_id)
        """,
        "Deposit {}: its account belongs to another customer or platform",
    ),
    (
        """
        SELECT f.id, f.status, count(e.subject_id)
        FROM transfers f
        LEFT JOIN system_accounts s ON (s.platform_id, s.currency, s.kind)
            = (f.platform_id, f.currency, 'TRANSFERS')
        LEFT JOIN entries e ON e.subject_id = f.id
        GROUP BY f.id, f.status
        HAVING count(e.subject_id) <> CASE f.status WHEN 'COMPLETED' THEN 2 ELSE 0 END
            OR bool_or(
                (e.sequence, e.customer_id, e.amount) <> (0, f.customer_id, f.amount)
                OR (e.line, e.debit_account_id, e.credit_account_id, e.account_id) NOT IN (
                    (0, f.source_account_id, s.id, f.source_account_id),
                    (1, s.id, f.destination_account_id, f.destination_account_id)
                )
            ) IS TRUE
        """,
        "Transfer {}: status is {}; its {} entries do not match",
    ),
    (
        """
        SELECT f.id FROM transfers f
        LEFT JOIN customers u ON u.id = f.customer_id
        LEFT JOIN internal_accounts a ON a.id = f.source_account_id
        LEFT JOIN internal_accounts b ON b.id = f.destination_account_id
        WHERE num_nulls(u.id, a.id, b.id) > 0 OR u.platform_id <> f.platform_id
            OR (a.customer_id, a.platform_id, a.currency)
                <> (f.customer_id, f.platform_id, f.currency)
            OR (b.customer_id, b.platform_id, b.currency)
                <> (f.customer_id, f.platform_id, f.currency)
        """,
        "Transfer {}: its accounts do not both belong to its customer, platform and currency",
    ),
    (
        f"""
        SELECT f.id, f.status, f.failure_reason, o.outcome, o.reason
        FROM transfers f
        LEFT JOIN outcomes o ON (o.reference, o.source, o.platform_id, o.customer_id)
            = (f.id::text, 'transfers', f.platform_id, f.customer_id)
        WHERE CASE
            WHEN f.status = 'COMPLETED' THEN o.outcome IS DISTINCT FROM 'APPLIED'
            WHEN f.failure_reason IN ({_LEDGER_FAILURES}) THEN
                (o.outcome, o.reason) IS DISTINCT FROM ('DECLINED', f.failure_reason)
            ELSE o.outcome IS NOT NULL END
        """,
        "Transfer {}: status is {} ({}); its recorded outcome is {} ({})",
    ),
    (
        """
        SELECT f.id FROM transfers f LEFT JOIN agent_actions a ON a.id = f.id
        WHERE f.agent_id IS DISTINCT FROM a.agent_id
            OR (a.customer_id, a.platform_id) <> (f.customer_id, f.platform_id)
            OR (a.rejection_reason IS NOT NULL
                AND f.failure_reason IS DISTINCT FROM 'REJECTED_BY_PLATFORM')
        """,
        "Transfer {}: does not match the agent action that requested it",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        LEFT JOIN customers u ON u.id = e.customer_id
        LEFT JOIN internal_accounts a ON a.id = e.account_id
        LEFT JOIN system_accounts d ON d.id = e.debit_account_id
        LEFT JOIN system_accounts c ON c.id = e.credit_account_id
        WHERE num_nonnulls(a.id, d.id, c.id) <> 2
            -- Those of a platform alone have no cardholder.
            OR (u.id IS NULL AND e.customer_id <> '00000000-0000-0000-0000-000000000000')
            OR coalesce(a.customer_id, e.customer_id) <> e.customer_id
            OR coalesce(a.platform_id, d.platform_id) <> coalesce(u.platform_id, d.platform_id)
            OR coalesce(c.platform_id, d.platform_id) <> coalesce(u.platform_id, d.platform_id)
            OR coalesce(a.currency, c.currency) <> coalesce(d.currency, c.currency)
        """,
        "Entry {}/{}/{}: its accounts do not belong to one cardholder, platform and currency",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        LEFT JOIN card_transactions t ON t.id = e.subject_id
        LEFT JOIN deposits d ON d.id = e.subject_id
        LEFT JOIN transfers f ON f.id = e.subject_id
        LEFT JOIN suspense_items i ON i.id = e.subject_id
        WHERE coalesce(t.customer_id, d.customer_id, f.customer_id, i.customer_id) <> e.customer_id
        """,
        "Entry {}/{}/{}: what it books has another cardholder",
    ),
    (
        """
        SELECT e.card_transaction_id, e.sequence FROM card_transaction_events e
        JOIN card_transactions t ON t.id = e.card_transaction_id
        WHERE e.customer_id <> t.customer_id
        """,
        "Event {}/{}: its card transaction has another cardholder",
    ),
    (
        """
        SELECT t.id FROM card_transactions t
        LEFT JOIN customers u ON u.id = t.customer_id
        LEFT JOIN cards c ON c.id = t.card_id
        LEFT JOIN internal_accounts a ON a.id = t.account_id
        WHERE num_nulls(u.id, c.id, a.id) > 0 OR u.platform_id <> t.platform_id
            OR (c.customer_id, c.platform_id, c.currency)
                <> (t.customer_id, t.platform_id, t.currency)
            OR (a.customer_id, a.platform_id, a.currency)
                <> (t.customer_id, t.platform_id, t.currency)
        """,
        "CardTransaction:{}: its card, account and cardholder do not belong together",
    ),
    (
        """
        SELECT f.id, f.sequence FROM (
            SELECT card_transaction_id AS id, sequence, customer_id, message_id
            FROM card_transaction_events
            UNION ALL SELECT id, 0, customer_id, message_id FROM deposits
        ) f LEFT JOIN outcomes o ON o.message_id = f.message_id AND o.customer_id = f.customer_id
        WHERE o.message_id IS NULL
        """,
        "Event or deposit {}/{}: has no outcome, so its message could be applied again",
    ),
    (
        """
        SELECT s.id, s.kind, s.currency, coalesce(k.kept, 0), coalesce(t.made, 0)
        FROM system_accounts s
        LEFT JOIN (
            SELECT platform_id, currency, kind, sum(amount) AS made FROM (
                SELECT platform_id, currency, c.kind, c.amount
                FROM card_transactions CROSS JOIN LATERAL (
                    SELECT pulled - released - settled + (written_off - debits_written_off) AS ahead
                ) a CROSS JOIN LATERAL (VALUES
                    ('CARD_HOLDS', greatest(ahead, 0)::numeric),
                    ('RECEIVABLE', -(greatest(-ahead, 0)::numeric + unpaid)),
                    ('NETWORK_SETTLEMENT', settled::numeric - refunded),
                    ('OPERATOR_LOSS', -written_off::numeric)
                ) c (kind, amount)
                UNION ALL
                SELECT i.platform_id, i.currency, k.kind,
                    CASE WHEN i.type IN ('CLEARING', 'RETURN_REVERSAL') THEN k.sign
                        ELSE -k.sign END * i.amount::numeric
                FROM suspense_items i
                CROSS JOIN (VALUES ('NETWORK_SETTLEMENT', 1), ('SUSPENSE', -1)) AS k (kind, sign)
                WHERE i.resolved_at IS NULL
                UNION ALL
                SELECT a.platform_id, a.currency, 'SANDBOX_FUNDING', -d.amount::numeric
                FROM deposits d JOIN internal_accounts a ON a.id = d.account_id
                UNION ALL
                SELECT platform_id, currency, to_kind, amount::numeric FROM adjustments
                WHERE kind = 'MOVE' AND state = 'BOOKED'
                UNION ALL
                SELECT platform_id, currency, from_kind, -amount::numeric FROM adjustments
                WHERE kind = 'MOVE' AND state = 'BOOKED'
            ) m GROUP BY platform_id, currency, kind
        ) t USING (platform_id, currency, kind)
        LEFT JOIN (
            SELECT id, sum(change) AS kept FROM (
                SELECT credit_account_id AS id, amount AS change FROM entries
                UNION ALL SELECT debit_account_id, -amount FROM entries
            ) e GROUP BY id
        ) k ON k.id = s.id
        WHERE coalesce(k.kept, 0) <> coalesce(t.made, 0)
        """,
        "System account {} ({} {}): its entries give {}; its sub-ledger gives {}",
    ),
    (
        """
        SELECT o.reference, o.source FROM outcomes o
        LEFT JOIN card_transaction_events e
            ON e.card_transaction_id = o.subject_id AND e.sequence = o.sequence
        WHERE o.outcome IN ('APPLIED', 'DECLINED') AND o.subject_id IS NOT NULL
            AND e.sequence IS NULL
        """,
        "Outcome of {} from {}: its event does not exist",
    ),
)
