"""Rejected messages of the ledger to itself are found among those of senders."""

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0112"
down_revision = "0111"

_NAME = "rejections_of_ledger_idx"


def upgrade() -> None:
    """Build the index while messages are rejected."""
    create_index_concurrently(_NAME, "rejections (id) WHERE source = 'engine'::text")


def downgrade() -> None:
    """Drop it."""
    drop_index_concurrently(_NAME)
