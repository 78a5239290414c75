"""Payments are found by either account, and those that await approval at once."""

from typing import Final

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0085"
down_revision = "0084"

_INDEXES: Final = {
    "transfers_source_account_id_idx": "transfers (platform_id, source_account_id, id)",
    "transfers_destination_account_id_idx": "transfers (platform_id, destination_account_id, id)",
    "transfers_approval_idx": (
        "transfers (created_at) WHERE needs_approval AND status = 'PENDING'::text"
    ),
}


def upgrade() -> None:
    """Build the indexes while payments are made."""
    for name, on in _INDEXES.items():
        create_index_concurrently(name, on)


def downgrade() -> None:
    """Drop them."""
    for name in _INDEXES:
        drop_index_concurrently(name)
