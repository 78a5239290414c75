"""Deleted endpoints with pending deliveries are found by an index, whatever was deleted before."""

from typing import Final

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0015"
down_revision = "0014"

_INDEX: Final = "webhook_endpoints_discard_idx"


def upgrade() -> None:
    """Build the index."""
    create_index_concurrently(
        _INDEX,
        "webhook_endpoints (deleted_at) WHERE deleted_at IS NOT NULL AND discarded_at IS NULL",
    )


def downgrade() -> None:
    """Drop the index."""
    drop_index_concurrently(_INDEX)
