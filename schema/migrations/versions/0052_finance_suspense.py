"""Finance sees what SUSPENSE consists of, and which unapplied messages have an item in it."""

from pathlib import Path
from typing import Final

from cardledger.schema.migrations import finance

revision = "0052"
down_revision = "0051"

_VIEWS: Final = Path(__file__).parent / "0041_finance_views.sql"


def upgrade() -> None:
    """Create the view and the function of suspense, and extend the view of unapplied messages."""
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    finance.grant()


def downgrade() -> None:
    """Put the former view back; a column can only be removed with its view."""
    views = _VIEWS.read_text(encoding="utf-8")
    begin = views.index("CREATE FUNCTION finance.json_or_null")
    former = views[begin : views.index("CREATE VIEW finance.audit")]
    finance.run("DROP FUNCTION finance.suspense(date, timestamptz)")
    finance.run("DROP VIEW finance.suspense, finance.unapplied")
    finance.run("DROP FUNCTION finance.json_or_null(text)")
    finance.run(former)
    finance.run("""
        COMMENT ON COLUMN entries.subject_id IS 'The card transaction, deposit or transfer.';
        COMMENT ON COLUMN entries.sequence IS
            'Event of the card transaction; 0 for a deposit or a transfer.';
    """)
    finance.grant_again()
