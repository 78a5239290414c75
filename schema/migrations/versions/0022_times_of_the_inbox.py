"""Times in the inbox that Python can read: a row with another one would stop its queue."""

from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Check the rows to come."""
    op.execute(
        "ALTER TABLE inbox ADD CONSTRAINT inbox_received_at_readable_check CHECK (received_at"
        " BETWEEN '2000-01-01 00:00:00+00' AND '9999-01-01 00:00:00+00') NOT VALID"
    )


def downgrade() -> None:
    """Check nothing."""
    op.execute("ALTER TABLE inbox DROP CONSTRAINT inbox_received_at_readable_check")
