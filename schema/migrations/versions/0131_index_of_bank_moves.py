"""The moves of a line of the bank are found by its break, and a move is reversed once."""

from typing import Final

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0131"
down_revision = "0130"

_OF_BREAKS: Final = "adjustments_break_idx"
_OF_REVERSALS: Final = "adjustments_reverses_key"


def upgrade() -> None:
    """Build the indexes; they have the moves of lines, and the reversals, only."""
    create_index_concurrently(_OF_BREAKS, "adjustments (break_id) WHERE break_id IS NOT NULL")
    create_index_concurrently(
        _OF_REVERSALS,
        "adjustments (reverses_id)"
        " WHERE reverses_id IS NOT NULL AND state NOT IN ('REJECTED', 'REFUSED')",
        is_unique=True,
    )


def downgrade() -> None:
    """Drop them."""
    drop_index_concurrently(_OF_REVERSALS)
    drop_index_concurrently(_OF_BREAKS)
