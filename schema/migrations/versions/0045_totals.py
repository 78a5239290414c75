"""Totals of entries, so that a balance at any day and time reads few of them."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0045"
down_revision = "0044"

_APPEND_ONLY: Final = ("posting_totals", "account_totals")
_SUMMED: Final = (
    "recorded_at, posted_on, debit_account_id, credit_account_id, amount, account_id,"
    " account_version"
)
_ALL: Final = "posting_totals, account_totals, posting_totals_progress"
_WRITES: Final = (
    f"SELECT ON {_ALL}",
    "INSERT ON posting_totals, account_totals",
    "UPDATE (recorded_until, settled_at, settled_by) ON posting_totals_progress",
    "EXECUTE ON FUNCTION summarize_entries()",
)
_RIGHTS: Final = {
    "app": _WRITES,
    "worker": (f"SELECT ({_SUMMED}) ON entries", *_WRITES),
    "reader": (f"SELECT ON {_ALL}",),
}

# Names in a function with the rights of its owner must not be looked up where its caller says.
_FUNCTION: Final = """
DO $$ BEGIN
    REVOKE EXECUTE ON FUNCTION summarize_entries() FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION summarize_entries() SET search_path = %I, pg_temp',
        current_schema());
END $$
"""


def upgrade() -> None:
    """Create the tables, empty: workers add the totals of entries that are there, page by page."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(_FUNCTION)
    for table in _APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")
    for suffix, rights in _RIGHTS.items():
        given = " ".join(f"EXECUTE format('GRANT {right} TO %I', role);" for right in rights)
        op.execute(
            f"DO $$ DECLARE role text := current_database() || '_{suffix}'; BEGIN {given} END $$"
        )


def downgrade() -> None:
    """Remove them, and what a worker could read of entries."""
    op.execute("DROP FUNCTION summarize_entries()")
    op.execute(f"DROP TABLE {_ALL}")
    # On the way back the role may be gone.
    op.execute(
        "DO $$ DECLARE role text := current_database() || '_worker'; BEGIN"
        " IF to_regrole(quote_ident(role)) IS NOT NULL THEN"
        f" EXECUTE format('REVOKE SELECT ({_SUMMED}) ON entries FROM %I', role); END IF; END $$"
    )
