"""The constraint of authorized credits holds for older rows as well."""

from alembic import op

revision = "0072"
down_revision = "0071"


def upgrade() -> None:
    """Check the rows that were there before the constraint."""
    op.execute(
        "ALTER TABLE card_transactions"
        " VALIDATE CONSTRAINT card_transactions_credit_authorized_check"
    )


def downgrade() -> None:
    """Leave the constraint: revision 0071 removes it."""
