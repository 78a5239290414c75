"""The moves of a line of the bank are found by its break."""

from typing import Final

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0131"
down_revision = "0130"

_NAME: Final = "adjustments_break_idx"


def upgrade() -> None:
    """Build the index; it has the moves of lines only."""
    create_index_concurrently(_NAME, "adjustments (break_id) WHERE break_id IS NOT NULL")


def downgrade() -> None:
    """Drop it."""
    drop_index_concurrently(_NAME)
