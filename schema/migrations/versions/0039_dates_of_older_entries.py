"""Entries from before the dates get them, and every currency its new system accounts.

`entries` is append-only by a trigger. While this revision runs, the trigger lets an UPDATE give a
row its two dates if it has none yet, and nothing else; no role of a process may update the table.
"""

from typing import Final

from cardledger.schema.migrations.steps import (
    change_in_pages,
    create_index_concurrently,
    drop_index_concurrently,
    execute_alone,
)

revision = "0039"
down_revision = "0038"

_NEW_KINDS: Final = "ARRAY['SETTLEMENT_BANK', 'SUSPENSE', 'INTERCHANGE', 'NETWORK_FEES']"

# A random UUID, with a bit that keeps it from a reserved ending.
_OPEN_ACCOUNTS: Final = f"""
    INSERT INTO system_accounts (id, platform_id, currency, kind)
    SELECT encode(set_bit(uuid_send(gen_random_uuid()), 115, 1), 'hex')::uuid,
        c.platform_id, c.currency, k.kind
    FROM (SELECT DISTINCT platform_id, currency FROM system_accounts) c
    CROSS JOIN unnest({_NEW_KINDS}) AS k (kind)
    WHERE NOT EXISTS (
        SELECT FROM system_accounts s
        WHERE (s.platform_id, s.currency, s.kind) = (c.platform_id, c.currency, k.kind)
    )
    LIMIT 1000
    ON CONFLICT DO NOTHING
"""
_CLOSE_ACCOUNTS: Final = f"""
    DELETE FROM system_accounts WHERE id IN (
        SELECT id FROM system_accounts WHERE kind = ANY({_NEW_KINDS}) LIMIT 1000
    )
"""

_MONEY: Final = (
    "subject_id, sequence, line, customer_id, debit_account_id, credit_account_id, amount,"
    " account_id, account_version, balance_after, recorded_at"
)


def _of(row: str) -> str:
    return ", ".join(f"{row}.{column.strip()}" for column in _MONEY.split(","))


_GUARD: Final = """
    CREATE OR REPLACE TRIGGER append_only BEFORE {changes} ON entries
        FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
    ALTER TABLE entries ENABLE ALWAYS TRIGGER append_only;
"""
_LET_DATES_IN: Final = f"""
DO $$ BEGIN
    CREATE OR REPLACE TRIGGER append_only_but_dates BEFORE UPDATE ON entries FOR EACH ROW
        WHEN (num_nulls(OLD.occurred_at, OLD.posted_on) < 2
            OR ({_of("OLD")}) IS DISTINCT FROM ({_of("NEW")}))
        EXECUTE FUNCTION refuse_change();
    ALTER TABLE entries ENABLE ALWAYS TRIGGER append_only_but_dates;
    {_GUARD.format(changes="DELETE OR TRUNCATE")}
END $$
"""
_LET_NOTHING_IN: Final = f"""
DO $$ BEGIN
    {_GUARD.format(changes="UPDATE OR DELETE OR TRUNCATE")}
END $$
"""

# In UTC, because there was no calendar. By the index of those without dates: a page costs the same
# however many were filled in before.
_FILL: Final = """
    UPDATE entries e SET occurred_at = p.occurred_at,
        posted_on = greatest(
            (least(p.occurred_at, p.recorded_at) AT TIME ZONE 'UTC')::date, p.first_open_day)
    FROM (
        SELECT n.*, coalesce(f.occurred_at, n.recorded_at) AS occurred_at, b.first_open_day
        FROM (
            SELECT subject_id, sequence, line, customer_id, recorded_at FROM entries
            WHERE posted_on IS NULL ORDER BY subject_id LIMIT 5000
        ) n
        CROSS JOIN books b
        LEFT JOIN card_transaction_events f ON n.sequence > 0
            AND (f.card_transaction_id, f.sequence, f.customer_id)
                = (n.subject_id, n.sequence, n.customer_id)
    ) p
    WHERE (e.subject_id, e.sequence, e.line, e.customer_id)
        = (p.subject_id, p.sequence, p.line, p.customer_id)
"""


def upgrade() -> None:
    """Fill in the dates, a page at a time, while others append entries; all steps can be repeated.

    Source: docs/finance.md, "Three dates"
    """
    execute_alone("ALTER TABLE system_accounts VALIDATE CONSTRAINT system_accounts_kind_check")
    execute_alone("ALTER TABLE system_accounts VALIDATE CONSTRAINT system_accounts_kind_fkey")
    change_in_pages(_OPEN_ACCOUNTS)
    create_index_concurrently("entries_undated_idx", "entries (subject_id) WHERE posted_on IS NULL")
    execute_alone(_LET_DATES_IN)
    change_in_pages(_FILL)
    execute_alone(_LET_NOTHING_IN)
    execute_alone("DROP TRIGGER IF EXISTS append_only_but_dates ON entries")
    drop_index_concurrently("entries_undated_idx")
    execute_alone("ALTER TABLE entries VALIDATE CONSTRAINT entries_dates_check")
    create_index_concurrently("entries_recorded_at_idx", "entries USING brin (recorded_at)")


def downgrade() -> None:
    """Remove the index, and the accounts, which have no entries; the dates stay until 0038."""
    drop_index_concurrently("entries_recorded_at_idx")
    change_in_pages(_CLOSE_ACCOUNTS)
