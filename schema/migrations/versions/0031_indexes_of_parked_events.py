"""Parked events are listed by key: of one platform, and all of them for an operator."""

from typing import Final

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0031"
down_revision = "0030"

_INDEXES: Final = {
    "parked_platform_id_idx": "parked (platform_id, id)",
    "parked_id_idx": "parked (id)",
}


def upgrade() -> None:
    """Build the indexes, one by one."""
    for name, on in _INDEXES.items():
        create_index_concurrently(name, on)


def downgrade() -> None:
    """Drop the indexes."""
    for name in _INDEXES:
        drop_index_concurrently(name)
