"""The closed day in whose books a late entry would have counted."""

from alembic import op

revision = "0057"
down_revision = "0055"


def upgrade() -> None:
    """Add the column, without a rewrite; a worker of the previous release leaves it empty."""
    op.execute("ALTER TABLE entries ADD COLUMN late_from DATE")
    op.execute(
        "COMMENT ON COLUMN entries.late_from IS"
        " 'The closed day in whose books the entry would have counted; null: it is not late.'"
    )


def downgrade() -> None:
    """Remove it."""
    op.execute("ALTER TABLE entries DROP COLUMN late_from")
