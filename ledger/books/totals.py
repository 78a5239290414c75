"""Totals of entries, added behind the engine, by which finance reads balances of any day and time.

A page of totals sums the entries recorded in a span of time. A batch reads the clock and is
committed later, so that a page may end at a time only once no batch from before it can be running:
every batch has a database transaction with an id before it reads the clock, and ids rise.
Connections are psycopg's, inside a database transaction of the caller.
Source: docs/decisions/0066-totals.md
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from psycopg import Connection

PAGE_ENTRIES: Final = 5_000
"""Entries of a page, about: those of one moment are never parted."""

ACCOUNT_ENTRIES: Final = 1_000
"""Entries of an account that have totals of their own."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)  # Where the search for the first page begins.
_FIRST_SPAN: Final = timedelta(seconds=1)
_WIDER: Final = 8


class _Turn(NamedTuple):
    """The right of a database transaction to add totals.

    `at` is a time before the transaction got its `id`; all before `oldest_running` have ended.
    """

    recorded_until: datetime
    settled_at: datetime | None
    settled_by: int | None
    at: datetime
    id: int
    oldest_running: int

    @property
    def has_settled(self) -> bool:
        """Whether no entry can be recorded until `settled_at` any more."""
        return self.settled_by is not None and self.settled_by <= self.oldest_running

    @property
    def is_marked(self) -> bool:
        """Whether a time is noted; one whose id is to come is of a server before a restore."""
        return self.settled_by is not None and self.settled_by < self.id


def advance(
    connection: Connection[Any],
    *,
    page_entries: int = PAGE_ENTRIES,
    account_entries: int = ACCOUNT_ENTRIES,
) -> bool:
    """Add the next page of totals, or note the time until which it may go.

    Returns whether there may be more to do at once: nothing is while another session does it, while
    fewer than a page of entries have no totals, and while an older database transaction runs.
    """
    turn = _take(connection)
    if turn is None or not _has_page(connection, turn.recorded_until, turn.at, page_entries):
        return False
    if not turn.is_marked:
        return _mark(connection, turn)
    if not turn.has_settled or turn.settled_at is None:
        return False
    end = _end(connection, turn.recorded_until, turn.settled_at, page_entries)
    if end is None:
        return _mark(connection, turn)
    values = {"end": end, "size": account_entries}
    for statement in (_ADD_PAGE, _ADD_ACCOUNTS, _ADVANCE):
        connection.execute(statement, values)
    return True


# A LIMIT makes PostgreSQL expect to find a page at the beginning of the table: it would read all of
# it for each page.
_BY_INDEX: Final = """
    SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)
"""
# A row, because any login may take any advisory lock; only workers may update it.
_LOCK: Final = """
    SELECT greatest(recorded_until, %s), settled_at, settled_by FROM posting_totals_progress
    FOR UPDATE SKIP LOCKED
"""
# now() is the beginning of this database transaction, which got its id later, by the lock. The
# snapshot's own end would not do: a transaction with a higher id may be running already.
_SNAPSHOT: Final = """
    SELECT now(), pg_current_xact_id()::text::bigint,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint
"""


def _take(connection: Connection[Any]) -> _Turn | None:
    """Return the turn of this database transaction, until its end; None: another one has it."""
    connection.execute(_BY_INDEX)
    locked = connection.execute(_LOCK, [_EPOCH]).fetchone()
    if locked is None:
        return None
    now = connection.execute(_SNAPSHOT).fetchone()
    assert now is not None, "a SELECT without FROM has a row"
    return _Turn(*locked, *now)


_HAS_PAGE: Final = """
    SELECT count(*) = %(page)s FROM (
        SELECT FROM entries WHERE recorded_at > %(begin)s AND recorded_at <= %(end)s LIMIT %(page)s
    ) e
"""


def _has_page(connection: Connection[Any], begin: datetime, end: datetime, page: int) -> bool:
    row = connection.execute(_HAS_PAGE, {"begin": begin, "end": end, "page": page}).fetchone()
    return row == (True,)


_MARK: Final = "UPDATE posting_totals_progress SET settled_at = %s, settled_by = %s"


def _mark(connection: Connection[Any], turn: _Turn) -> bool:
    """Note the time of `turn`: the next page may go until then, once older batches have ended."""
    connection.execute(_MARK, [turn.at, turn.id])
    return True


_SAMPLE: Final = """
    SELECT count(*), (array_agg(s.recorded_at ORDER BY s.recorded_at))[%(page)s]
    FROM (
        SELECT recorded_at FROM entries
        WHERE recorded_at > %(begin)s AND recorded_at <= %(end)s LIMIT 2 * %(page)s
    ) s
"""


def _end(
    connection: Connection[Any], begin: datetime, limit: datetime, page: int
) -> datetime | None:
    """Return the end of the page from `begin` on, at most `limit`; None: it is not full by then.

    Without an ordered index: a span is widened until it holds a page, then narrowed to it, by
    samples of two pages.
    """
    span = _FIRST_SPAN
    end = min(begin + span, limit)
    while True:
        values = {"begin": begin, "end": end, "page": page}
        row = connection.execute(_SAMPLE, values).fetchone()
        assert row is not None, "count(*) returns a row"
        count: int = row[0]
        nearer: datetime = row[1]
        if count < page:
            if end == limit:
                return None
            span *= _WIDER
            end = min(begin + span, limit)
        elif count < 2 * page or nearer == end:
            return nearer
        else:
            end = nearer


# Added up by pairs of system accounts; null is the customer's side.
_ADD_PAGE: Final = """
    INSERT INTO posting_totals (recorded_until, recorded_after, platform_id, currency, kind,
        posted_on, debits, credits, entries)
    SELECT %(end)s, g.recorded_until, coalesce(d.platform_id, c.platform_id),
        coalesce(d.currency, c.currency), s.kind, m.posted_on, sum(s.debits), sum(s.credits),
        sum(m.entries)
    FROM (
        SELECT nullif(e.debit_account_id, e.account_id) AS debit_id,
            nullif(e.credit_account_id, e.account_id) AS credit_id, e.posted_on,
            sum(e.amount) AS amount, count(*) AS entries
        FROM entries e
        WHERE e.recorded_at > (SELECT recorded_until FROM posting_totals_progress)
            AND e.recorded_at <= %(end)s
        GROUP BY 1, 2, 3
    ) m
    CROSS JOIN posting_totals_progress g
    LEFT JOIN system_accounts d ON d.id = m.debit_id
    LEFT JOIN system_accounts c ON c.id = m.credit_id
    CROSS JOIN LATERAL (VALUES
        (coalesce(d.kind, 'CUSTOMER'), m.amount, 0), (coalesce(c.kind, 'CUSTOMER'), 0, m.amount)
    ) AS s (kind, debits, credits)
    GROUP BY g.recorded_until, coalesce(d.platform_id, c.platform_id),
        coalesce(d.currency, c.currency), s.kind, m.posted_on
"""

# The entries of an account are committed in the order of their versions. Whatever is missing before
# the one that is reached is added with it, so that the totals of an account have no gap.
_ADD_ACCOUNTS: Final = """
    INSERT INTO account_totals (account_id, first_version, last_version, posted_on, recorded_from,
        recorded_until, debits, credits)
    SELECT p.account_id, p.last_version - %(size)s + 1, p.last_version, s.*
    FROM (
        SELECT e.account_id, max(e.account_version) AS version FROM entries e
        WHERE e.recorded_at > (SELECT recorded_until FROM posting_totals_progress)
            AND e.recorded_at <= %(end)s AND e.account_version %% %(size)s = 0
        GROUP BY e.account_id
    ) r
    CROSS JOIN LATERAL (
        SELECT r.account_id, v.last_version FROM generate_series((
            SELECT coalesce(max(t.last_version), 0) + %(size)s FROM account_totals t
            WHERE t.account_id = r.account_id
        ), r.version, %(size)s) AS v (last_version)
    ) p
    CROSS JOIN LATERAL (
        SELECT e.posted_on, min(min(e.recorded_at)) OVER (), max(max(e.recorded_at)) OVER (),
            sum(CASE e.debit_account_id WHEN p.account_id THEN e.amount ELSE 0 END),
            sum(CASE e.debit_account_id WHEN p.account_id THEN 0 ELSE e.amount END)
        FROM entries e
        WHERE e.account_id = p.account_id
            AND e.account_version BETWEEN p.last_version - %(size)s + 1 AND p.last_version
        GROUP BY e.posted_on
    ) s
"""

_ADVANCE: Final = "UPDATE posting_totals_progress SET recorded_until = %(end)s"


def summarize(connection: Connection[Any]) -> None:
    """Have new entries found by their time without reading all behind them."""
    connection.execute("SELECT summarize_entries()")
