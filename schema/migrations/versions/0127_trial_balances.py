"""Trial balances that workers keep, so that a page shows one without adding up entries."""

from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations.views import create_view

revision = "0127"
down_revision = "0126"

_SUMS: Final = "debits, credits, entries, recent_debits, recent_credits, recent_entries"
_WRITES: Final = (
    "SELECT ON trial_balances, trial_balance_progress",
    "INSERT ON trial_balances",
    f"UPDATE ({_SUMS}) ON trial_balances",
    "UPDATE (totals_until, as_of, computed_at) ON trial_balance_progress",
)
_RIGHTS: Final = {
    "app": _WRITES,
    "worker": _WRITES,
    "api": ("SELECT ON trial_balance_progress",),
    "reader": ("SELECT ON trial_balances, trial_balance_progress",),
}


def upgrade() -> None:
    """Create the tables, empty: a worker adds up the totals that are there, some at a time."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for suffix, rights in _RIGHTS.items():
        given = " ".join(f"EXECUTE format('GRANT {right} TO %I', role);" for right in rights)
        op.execute(
            f"DO $$ DECLARE role text := current_database() || '_{suffix}'; BEGIN {given} END $$"
        )
    create_view("trial_balances", "SELECT")


def downgrade() -> None:
    """Remove them."""
    op.execute(
        "DO $$ BEGIN EXECUTE format('DROP VIEW %I.trial_balances', current_schema() || '_api');"
        " END $$"
    )
    op.execute("DROP TABLE trial_balances, trial_balance_progress")
