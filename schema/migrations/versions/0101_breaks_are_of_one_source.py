"""A break is of a file or of a statement, in older rows as well."""

from alembic import op

revision = "0101"
down_revision = "0100"


def upgrade() -> None:
    """Check the rows that were there before the constraints."""
    op.execute(
        "ALTER TABLE breaks VALIDATE CONSTRAINT breaks_kind_check,"
        " VALIDATE CONSTRAINT breaks_about_check"
    )


def downgrade() -> None:
    """Leave the constraints: revision 0100 replaces them."""
