"""The times of the messages that wait are checked, too."""

from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Check the rows that wait, without a lock that blocks writes."""
    op.execute("ALTER TABLE inbox VALIDATE CONSTRAINT inbox_received_at_readable_check")


def downgrade() -> None:
    """Nothing: a constraint that was checked stays checked."""
