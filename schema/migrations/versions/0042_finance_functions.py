"""The functions of finance: balances posted on or before a day, as they were known at a time."""

from pathlib import Path

from cardledger.schema.migrations import finance

revision = "0042"
down_revision = "0041"


def upgrade() -> None:
    """Create the functions."""
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    finance.grant()


def downgrade() -> None:
    """Remove them."""
    finance.run("""
        DROP FUNCTION finance.receivables(date, timestamptz);
        DROP FUNCTION finance.open_holds(date, timestamptz);
        DROP FUNCTION finance.statement(uuid, date, date, timestamptz);
        DROP FUNCTION finance.balance(uuid, date, timestamptz);
        DROP FUNCTION finance.trial_balance(date, timestamptz, uuid);
        DROP FUNCTION finance.version();
    """)
