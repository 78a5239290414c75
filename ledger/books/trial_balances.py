"""The trial balance of each platform and currency, kept by a worker for pages that show it.

Totals of entries are added up once each; the entries that no totals have yet, fewer than a page of
them as a rule, are added up anew each time. All of it is read in one snapshot, so that debits equal
credits. Connections are psycopg's, inside a REPEATABLE READ database transaction of the caller.
Source: docs/decisions/0090-trial-balance-snapshots.md
"""

from datetime import datetime
from typing import Any, Final

from psycopg import Connection

PAGES: Final = 500
"""Pages of totals that are added up at once."""

RECENT_LIMIT: Final = 50_000
"""Entries without totals that are added up; where there are more, they are not counted yet."""


def advance(
    connection: Connection[Any], *, pages: int = PAGES, recent_limit: int = RECENT_LIMIT
) -> bool:
    """Bring the trial balances up to the time of the snapshot, or some pages closer to it.

    Returns whether there may be more to do at once: nothing is while another session does it.
    """
    connection.execute(_BY_INDEX)
    locked = connection.execute(_LOCK).fetchone()
    if locked is None:
        return False
    begin: datetime = locked[0]
    until, has_more = _reached(connection, begin, pages)
    if until is not None:
        values = {"begin": begin, "until": until}
        connection.execute(_FORGET_RECENT)
        connection.execute(_ADD_TOTALS, values)
    as_of = until
    if not has_more and _are_few(connection, recent_limit):
        connection.execute(_ADD_RECENT)
        connection.execute(_ADVANCE_TO_NOW, {"until": until})
        return False
    if as_of is not None:
        connection.execute(_ADVANCE, {"until": until})
    return has_more


# As for totals: PostgreSQL expects to find what a LIMIT asks for at the beginning of the table.
_BY_INDEX: Final = """
    SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)
"""
_LOCK: Final = """
    SELECT greatest(totals_until, '1970-01-01 00:00:00+00') FROM trial_balance_progress
    FOR UPDATE SKIP LOCKED
"""
_PAGES: Final = """
    SELECT max(p.recorded_until), count(*) FROM (
        SELECT DISTINCT recorded_until FROM posting_totals
        WHERE recorded_until > %(begin)s ORDER BY recorded_until LIMIT %(pages)s
    ) p
"""


def _reached(
    connection: Connection[Any], begin: datetime, pages: int
) -> tuple[datetime | None, bool]:
    """Return the end of the next pages of totals, None: there are none; and if there are more."""
    row = connection.execute(_PAGES, {"begin": begin, "pages": pages}).fetchone()
    assert row is not None, "an aggregate has a row"
    return row[0], row[1] == pages


_ADD_TOTALS: Final = """
    INSERT INTO trial_balances AS b (platform_id, currency, kind, debits, credits, entries,
        recent_debits, recent_credits, recent_entries)
    SELECT platform_id, currency, kind, sum(debits), sum(credits), sum(entries), 0, 0, 0
    FROM posting_totals WHERE recorded_until > %(begin)s AND recorded_until <= %(until)s
    GROUP BY platform_id, currency, kind
    ON CONFLICT (platform_id, currency, kind) DO UPDATE SET debits = b.debits + excluded.debits,
        credits = b.credits + excluded.credits, entries = b.entries + excluded.entries
"""
# What was recent is in the totals now.
_FORGET_RECENT: Final = """
    UPDATE trial_balances SET recent_debits = 0, recent_credits = 0, recent_entries = 0
    WHERE recent_entries <> 0
"""
_RECENT: Final = """
    FROM entries e
    WHERE e.recorded_at > (SELECT recorded_until FROM posting_totals_progress)
        AND e.recorded_at <= 'infinity'
"""
_COUNT_RECENT: Final = f"SELECT count(*) FROM (SELECT {_RECENT} LIMIT %(limit)s) e"


def _are_few(connection: Connection[Any], limit: int) -> bool:
    row = connection.execute(_COUNT_RECENT, {"limit": limit + 1}).fetchone()
    assert row is not None, "count(*) returns a row"
    return bool(row[0] <= limit)


# As `totals.py` adds up a page: by pairs of system accounts; null is the customer's side.
_ADD_RECENT: Final = f"""
    INSERT INTO trial_balances AS b (platform_id, currency, kind, debits, credits, entries,
        recent_debits, recent_credits, recent_entries)
    SELECT coalesce(d.platform_id, c.platform_id), coalesce(d.currency, c.currency), s.kind,
        0, 0, 0, sum(s.debits), sum(s.credits), sum(m.entries)
    FROM (
        SELECT nullif(e.debit_account_id, e.account_id) AS debit_id,
            nullif(e.credit_account_id, e.account_id) AS credit_id,
            sum(e.amount) AS amount, count(*) AS entries
        {_RECENT}
        GROUP BY 1, 2
    ) m
    LEFT JOIN system_accounts d ON d.id = m.debit_id
    LEFT JOIN system_accounts c ON c.id = m.credit_id
    CROSS JOIN LATERAL (VALUES
        (coalesce(d.kind, 'CUSTOMER'), m.amount, 0), (coalesce(c.kind, 'CUSTOMER'), 0, m.amount)
    ) AS s (kind, debits, credits)
    GROUP BY 1, 2, 3
    ON CONFLICT (platform_id, currency, kind) DO UPDATE
    SET recent_debits = excluded.recent_debits, recent_credits = excluded.recent_credits,
        recent_entries = excluded.recent_entries
    WHERE b.recent_entries <> excluded.recent_entries
"""
_ADVANCE: Final = """
    UPDATE trial_balance_progress
    SET totals_until = %(until)s, as_of = %(until)s, computed_at = now()
"""
_ADVANCE_TO_NOW: Final = """
    UPDATE trial_balance_progress
    SET totals_until = coalesce(%(until)s, totals_until), as_of = now(), computed_at = now()
"""
