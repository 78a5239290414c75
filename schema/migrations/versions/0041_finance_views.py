"""The views that finance reads."""

from pathlib import Path

from cardledger.schema.migrations import finance

revision = "0041"
down_revision = "0040"


def upgrade() -> None:
    """Create the views, with a comment on each and on every column."""
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    finance.grant()


def downgrade() -> None:
    """Remove them."""
    finance.run("""
        DROP VIEW finance.audit, finance.unapplied, finance.network_days, finance.receivables,
            finance.open_holds, finance.card_transactions, finance.postings, finance.journal,
            finance.accounts, finance.currencies;
        DROP FUNCTION finance.json_or_null(text);
    """)
