"""A conversion is whole or absent, in older rows as well."""

from alembic import op

revision = "0092"
down_revision = "0091"


def upgrade() -> None:
    """Check the rows that were there before the constraint."""
    op.execute(
        "ALTER TABLE card_transactions VALIDATE CONSTRAINT card_transactions_conversion_check"
    )


def downgrade() -> None:
    """Leave the constraint: revision 0091 removes it."""
