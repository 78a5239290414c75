"""Timeout reversals that wait are found by the authorization that they settle, in any queue."""

from typing import Final

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0141"
down_revision = "0140"

_INDEX: Final = "inbox_timeout_reversals_idx"


def upgrade() -> None:
    """Build the index, which is empty most of the time."""
    create_index_concurrently(
        _INDEX, "inbox (customer_id, reference) WHERE source = 'decision-timeout'"
    )


def downgrade() -> None:
    """Drop it."""
    drop_index_concurrently(_INDEX)
