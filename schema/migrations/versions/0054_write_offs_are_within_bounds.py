"""No more is written off of refund reversals than is written off, in older rows as well."""

from alembic import op

revision = "0054"
down_revision = "0053"


def upgrade() -> None:
    """Check the rows that were there before the constraint."""
    op.execute(
        "ALTER TABLE card_transactions VALIDATE CONSTRAINT card_transactions_written_off_check"
    )


def downgrade() -> None:
    """Leave the constraint: revision 0053 removes it."""
