"""The proof: fold every event again, book every entry again, and compare with what is kept.

Reads one snapshot, so that it can run beside live traffic, and streams it, so that memory does
not grow with the books. It shares the rules with the engine and nothing else: what it compares
was written by COPY and UPDATE, what it compares with comes from `fold` and `entries`.

It proves sums, references and homes. It cannot know what nothing else repeats: when a fact is
said to have happened, what a merchant is called, which of a cardholder's accounts a refused
authorization asked, and what was told to receivers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any, Final

from psycopg import Connection, IsolationLevel
from sqlalchemy import Engine

from cardledger.ledger.core.entries import Account as Role
from cardledger.ledger.core.entries import Entry, entries
from cardledger.ledger.core.transfer import DECIDED_BY_THE_LEDGER
from cardledger.ledger.projections import card_transaction_rows, history
from cardledger.ledger.projections.card_transaction import Identity
from cardledger.ledger.projections.event_rows import EventRow, from_row
from cardledger.ledger.storage.engines import driver
from cardledger.schema.ids import Id

Progress = Callable[[int, int], None]
"""Called now and then with the events folded and the events there are."""

_PAGE: Final = 2000  # Rows a round trip.
_TELL_EVERY: Final = 1000
_MANY: Final = 100  # Differences told in words; the rest is counted.

_Row = Sequence[Any]
_SystemAccounts = dict[tuple[Id, str, str], Id]


@dataclass(slots=True)
class Report:
    """What was compared, and where it differs."""

    events: int = 0
    card_transactions: int = 0
    accounts: int = 0
    entries: int = 0
    deposits: int = 0
    transfers: int = 0
    difference_count: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether the books are what the events make them."""
        return not self.difference_count

    def differs(self, what: str) -> None:
        """Note one difference."""
        self.difference_count += 1
        if len(self.differences) < _MANY:
            self.differences.append(what)


def verify(engine: Engine, progress: Progress | None = None) -> Report:
    """Compare roll-ups, entries and balances with a new fold of every event.

    Raises: OperationalError when PostgreSQL is away.
    """
    with engine.connect() as outer:
        connection = driver(outer)
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        try:
            with connection.transaction():
                return verify_on(connection, progress or (lambda _done, _total: None))
        finally:
            connection.isolation_level = None


def verify_on(connection: Connection[Any], progress: Progress) -> Report:
    """Do as `verify` does, in the database transaction of `connection`."""
    report = Report()
    connection.execute("SET LOCAL statement_timeout = 0")
    for table in ("accounts", "deposits", "entries", "transfers"):
        name = "internal_accounts" if table == "accounts" else table
        setattr(report, table, _count(connection, name))
    total = _count(connection, "card_transaction_events")
    system_accounts = _system_accounts(connection)
    for today, events, booked in _card_transactions(connection):
        report.card_transactions += 1
        _check_card_transaction(report, today, events, booked, system_accounts)
        before, report.events = report.events, report.events + len(events)
        if before // _TELL_EVERY != report.events // _TELL_EVERY:
            progress(report.events, total)
    for statement, sentence in _MUST_BE_EMPTY:
        for row in connection.execute(statement):
            report.differs(sentence.format(*row))
    if report.events != total:
        report.differs(f"{total - report.events} events belong to no card transaction")
    progress(total, total)
    return report


def _check_card_transaction(
    report: Report,
    today: _Row,
    events: Sequence[_Row],
    booked: Sequence[_Row],
    system_accounts: _SystemAccounts,
) -> None:
    kept = card_transaction_rows.from_row(today)
    name = f"CardTransaction:{kept.identity.id}"
    try:
        folded = list(history.refold(kept, events))
        expected = list(_expected_entries(kept.identity, events, system_accounts))
    except (ValueError, KeyError) as error:
        report.differs(f"{name}: its events cannot be folded: {error!r}")
        return
    if not folded:
        report.differs(f"{name}: has no events")
        return
    if events[0][1] != kept.identity.created_at:
        report.differs(f"{name}: was created at another time than its first event")
    made = card_transaction_rows.to_row(folded[-1])
    for column, found, wanted in zip(card_transaction_rows.COLUMNS, today, made, strict=False):
        if found != wanted:
            report.differs(f"{name}: {column} is {found}, its events make it {wanted}")
    for place, (wanted, found) in enumerate(zip_longest(expected, map(tuple, booked)), start=1):
        if wanted != found:
            report.differs(f"{name}: entry {place} is {found}, its events make it {wanted}")


def _expected_entries(
    who: Identity, events: Iterable[_Row], system_accounts: _SystemAccounts
) -> Iterator[_Row]:
    """Yield (sequence, line, debit, credit, amount) of every movement that `events` make."""

    def account(role: Role) -> Id:
        if role is Role.CUSTOMER:
            return who.account_id
        return system_accounts[who.platform_id, who.currency, role]

    def row(sequence: int, line: int, entry: Entry) -> _Row:
        return (sequence, line, account(entry.debit), account(entry.credit), entry.amount)

    for sequence, (_, _, *fact) in enumerate(events, start=1):
        for line, entry in enumerate(entries(from_row(EventRow(*fact)))):
            yield row(sequence, line, entry)


def _card_transactions(
    connection: Connection[Any],
) -> Iterator[tuple[_Row, list[_Row], list[_Row]]]:
    """Yield every card transaction with its events and its entries, in the order of ids."""
    columns = ", ".join(f"t.{column}" for column in card_transaction_rows.COLUMNS)
    events = _Grouped(
        connection,
        "events",
        "SELECT card_transaction_id, message_id, recorded_at, kind, amount, unfunded, final,"
        " reason FROM card_transaction_events ORDER BY card_transaction_id, sequence",
    )
    booked = _Grouped(
        connection,
        "entries",
        "SELECT subject_id, sequence, line, debit_account_id, credit_account_id, amount"
        " FROM entries WHERE sequence > 0 ORDER BY subject_id, sequence, line",
    )
    rows = _stream(
        connection,
        "card_transactions",
        f"SELECT {columns}, u.platform_customer_id FROM card_transactions t"
        " JOIN customers u ON u.id = t.customer_id ORDER BY t.id",
    )
    for row in rows:
        yield row, events.of(row[0]), booked.of(row[0])


class _Grouped:
    """Rows of a stream by their first column, asked for in its order."""

    def __init__(self, connection: Connection[Any], name: str, query: str) -> None:
        rows = _stream(connection, name, query)
        self._groups = groupby(rows, key=itemgetter(0))
        self._ahead: tuple[Id, list[_Row]] | None = None

    def of(self, key: Id) -> list[_Row]:
        """Return the rest of every row of `key`; rows of keys never asked for are passed over."""
        while self._ahead is None or self._ahead[0] < key:
            group = next(self._groups, None)
            if group is None:
                return []
            self._ahead = group[0], [row[1:] for row in group[1]]
        return self._ahead[1] if self._ahead[0] == key else []


def _stream(connection: Connection[Any], name: str, query: str) -> Iterator[_Row]:
    with connection.cursor(name=f"verify_{name}") as cursor:
        cursor.itersize = _PAGE
        yield from cursor.execute(query)


def _system_accounts(connection: Connection[Any]) -> _SystemAccounts:
    rows = connection.execute("SELECT platform_id, currency, kind, id FROM system_accounts")
    return {(platform, currency, kind): key for platform, currency, kind, key in rows}


def _count(connection: Connection[Any], table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None, "count(*) has a row"
    count: int = row[0]
    return count


_REFUSALS: Final = ", ".join(f"'{reason}'" for reason in sorted(DECIDED_BY_THE_LEDGER))

# Each statement returns what is wrong; each sentence says it.
_MUST_BE_EMPTY: Final = (
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
        "InternalAccount:{}: balance {} at version {}, its entries make it {} at {}",
    ),
    (
        """
        SELECT a.id, a.held, a.owed, a.pending,
               coalesce(t.held, 0), coalesce(t.owed, 0), coalesce(t.pending, 0)
        FROM internal_accounts a LEFT JOIN (
            SELECT account_id, sum(greatest(pulled - released - settled, 0)) AS held,
                   sum(greatest(settled - pulled + released, 0) + unpaid) AS owed,
                   sum(pending) AS pending
            FROM card_transactions GROUP BY account_id
        ) t ON t.account_id = a.id
        WHERE (a.held, a.owed, a.pending)
            <> (coalesce(t.held, 0), coalesce(t.owed, 0), coalesce(t.pending, 0))
        """,
        "InternalAccount:{}: held, owed, pending {}, {}, {}; its card transactions: {}, {}, {}",
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
        "InternalAccount:{}: entry {} says {} after it, the entries before make it {}",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        WHERE account_id IS DISTINCT FROM (
            SELECT a.id FROM internal_accounts a
            WHERE a.id IN (e.debit_account_id, e.credit_account_id)
        )
        """,
        "entry {}/{}/{}: does not name the customer's account it moves",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        LEFT JOIN card_transactions t ON t.id = e.subject_id AND e.sequence > 0
        LEFT JOIN deposits d ON d.id = e.subject_id AND e.sequence = 0
        LEFT JOIN transfers f ON f.id = e.subject_id AND e.sequence = 0
        WHERE t.id IS NULL AND d.id IS NULL AND f.id IS NULL
        """,
        "entry {}/{}/{}: belongs to nothing",
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
        "deposit {}: {} arrived, booked {} times",
    ),
    (
        """
        SELECT e.subject_id, count(*) FROM entries e JOIN deposits d ON d.id = e.subject_id
        WHERE e.sequence = 0 GROUP BY e.subject_id HAVING count(*) <> 1 OR max(e.line) <> 0
        """,
        "deposit {}: has {} entries",
    ),
    (
        """
        SELECT d.id FROM deposits d LEFT JOIN internal_accounts a ON a.id = d.account_id
        WHERE a.id IS NULL OR (a.customer_id, a.platform_id) <> (d.customer_id, d.platform_id)
        """,
        "deposit {}: its account is not one of its owner and platform",
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
        "transfer {}: is {}, and its {} entries are not what that makes of it",
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
        "transfer {}: its accounts are not two of its customer and platform, in its currency",
    ),
    (
        f"""
        SELECT f.id, f.status, f.failure_reason, o.outcome, o.reason
        FROM transfers f
        LEFT JOIN outcomes o ON (o.reference, o.source, o.platform_id, o.customer_id)
            = (f.id::text, 'transfers', f.platform_id, f.customer_id)
        WHERE CASE
            WHEN f.status = 'COMPLETED' THEN o.outcome IS DISTINCT FROM 'APPLIED'
            WHEN f.failure_reason IN ({_REFUSALS}) THEN
                (o.outcome, o.reason) IS DISTINCT FROM ('DECLINED', f.failure_reason)
            ELSE o.outcome IS NOT NULL END
        """,
        "transfer {}: is {} ({}), its outcome is {} ({})",
    ),
    (
        """
        SELECT f.id FROM transfers f LEFT JOIN agent_actions a ON a.id = f.id
        WHERE f.agent_id IS DISTINCT FROM a.agent_id
            OR (a.customer_id, a.platform_id) <> (f.customer_id, f.platform_id)
            OR (a.rejection_reason IS NOT NULL
                AND f.failure_reason IS DISTINCT FROM 'REJECTED_BY_PLATFORM')
        """,
        "transfer {}: is not what its agent's action asked for",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        LEFT JOIN customers u ON u.id = e.customer_id
        LEFT JOIN internal_accounts a ON a.id = e.account_id
        LEFT JOIN system_accounts d ON d.id = e.debit_account_id
        LEFT JOIN system_accounts c ON c.id = e.credit_account_id
        WHERE u.id IS NULL OR num_nonnulls(a.id, d.id, c.id) <> 2
            OR coalesce(a.customer_id, e.customer_id) <> e.customer_id
            OR coalesce(a.platform_id, d.platform_id) <> u.platform_id
            OR coalesce(c.platform_id, d.platform_id) <> u.platform_id
            OR coalesce(a.currency, c.currency) <> coalesce(d.currency, c.currency)
        """,
        "entry {}/{}/{}: its accounts are not two of its cardholder and platform, in one currency",
    ),
    (
        """
        SELECT e.subject_id, e.sequence, e.line FROM entries e
        LEFT JOIN card_transactions t ON t.id = e.subject_id
        LEFT JOIN deposits d ON d.id = e.subject_id
        LEFT JOIN transfers f ON f.id = e.subject_id
        WHERE coalesce(t.customer_id, d.customer_id, f.customer_id) <> e.customer_id
        """,
        "entry {}/{}/{}: is at home with another cardholder than what it belongs to",
    ),
    (
        """
        SELECT e.card_transaction_id, e.sequence FROM card_transaction_events e
        JOIN card_transactions t ON t.id = e.card_transaction_id
        WHERE e.customer_id <> t.customer_id
        """,
        "event {}/{}: is at home with another cardholder than its card transaction",
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
        "fact {}/{}: nothing says which message caused it, so that could be applied again",
    ),
    (
        """
        SELECT s.id, s.kind, s.currency, coalesce(k.kept, 0), coalesce(t.made, 0)
        FROM system_accounts s
        LEFT JOIN (
            SELECT platform_id, currency, kind, sum(amount) AS made FROM (
                SELECT platform_id, currency, 'CARD_HOLDS' AS kind,
                       greatest(pulled - released - settled, 0)::numeric AS amount
                FROM card_transactions
                UNION ALL
                SELECT platform_id, currency, 'RECEIVABLE',
                       -(greatest(settled - pulled + released, 0)::numeric + unpaid)
                FROM card_transactions
                UNION ALL
                SELECT platform_id, currency, 'NETWORK_SETTLEMENT', settled::numeric - refunded
                FROM card_transactions
                UNION ALL
                SELECT a.platform_id, a.currency, 'SANDBOX_FUNDING', -d.amount::numeric
                FROM deposits d JOIN internal_accounts a ON a.id = d.account_id
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
        "system account {} ({} {}): its entries make it {}, the facts {}",
    ),
    (
        """
        SELECT o.reference, o.source FROM outcomes o
        LEFT JOIN card_transaction_events e
            ON e.card_transaction_id = o.subject_id AND e.sequence = o.sequence
        WHERE o.outcome IN ('APPLIED', 'DECLINED') AND o.subject_id IS NOT NULL
            AND e.sequence IS NULL
        """,
        "outcome of {} from {}: its events are not there",
    ),
)
