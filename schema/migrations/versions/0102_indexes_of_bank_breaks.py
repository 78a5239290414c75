"""A line of a statement has one break of a kind, and so has a day that is not paid."""

from typing import Final

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0102"
down_revision = "0101"

_INDEXES: Final = {
    "breaks_statement_line_key": "breaks (statement_id, line, kind) WHERE statement_id IS NOT NULL"
    " AND line IS NOT NULL",
    "breaks_not_paid_key": "breaks (paid_file_id, currency) WHERE kind = 'NOT_PAID'::text",
}
# The key of lines does not find the breaks of days, which have none.
_OF_STATEMENT: Final = "breaks_statement_idx"


def upgrade() -> None:
    """Build the indexes while files are imported."""
    for name, on in _INDEXES.items():
        create_index_concurrently(name, on, is_unique=True)
    create_index_concurrently(_OF_STATEMENT, "breaks (statement_id) WHERE statement_id IS NOT NULL")


def downgrade() -> None:
    """Drop them."""
    drop_index_concurrently(_OF_STATEMENT)
    for name in _INDEXES:
        drop_index_concurrently(name)
