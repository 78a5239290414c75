"""A document has a file in PostgreSQL or in a directory, in older rows as well."""

from alembic import op

revision = "0134"
down_revision = "0133"


def upgrade() -> None:
    """Check the rows that were there before the constraint."""
    op.execute("ALTER TABLE document_contents VALIDATE CONSTRAINT document_contents_place_check")


def downgrade() -> None:
    """Leave the constraint: revision 0133 removes it."""
