"""Fees of settlement files are found by their reference."""

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0096"
down_revision = "0095"


def upgrade() -> None:
    """Build the index while files are imported."""
    create_index_concurrently(
        "network_lines_fees_idx",
        "network_lines (reference, file_id)"
        " WHERE type IN ('FEE', 'FEE_REVERSAL') AND reference IS NOT NULL",
    )


def downgrade() -> None:
    """Drop it."""
    drop_index_concurrently("network_lines_fees_idx")
