"""Items of SUSPENSE have a card unless they are of a payout, in older rows as well."""

from alembic import op

revision = "0136"
down_revision = "0135"


def upgrade() -> None:
    """Check the rows that were there before the constraints."""
    for name in ("cause", "type", "card"):
        op.execute(f"ALTER TABLE suspense_items VALIDATE CONSTRAINT suspense_items_{name}_check")


def downgrade() -> None:
    """Leave the constraints: revision 0135 changes them."""
