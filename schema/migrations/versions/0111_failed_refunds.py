"""Payments whose refund has failed are found at once."""

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0111"
down_revision = "0110"

_NAME = "transfers_failed_refund_idx"


def upgrade() -> None:
    """Build the index while payments are made."""
    create_index_concurrently(_NAME, "transfers (id) WHERE refund_status = 'FAILED'::text")


def downgrade() -> None:
    """Drop it."""
    drop_index_concurrently(_NAME)
