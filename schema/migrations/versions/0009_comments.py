"""Comments: the standard terms of accounting and of card payments."""

from pathlib import Path

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Set the comments of tables, views and columns."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Leave the comments: they describe the tables of revision 0008 as well."""
