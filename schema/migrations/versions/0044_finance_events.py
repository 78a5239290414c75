"""The events of card transactions for finance: what explains an amount to the cent."""

from pathlib import Path

from cardledger.schema.migrations import finance

revision = "0044"
down_revision = "0043"


def upgrade() -> None:
    """Create the view, with a comment on every column."""
    finance.run(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    finance.grant()


def downgrade() -> None:
    """Remove it."""
    finance.run("DROP VIEW finance.events")
