"""The parked events of a platform are listed by key."""

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0031"
down_revision = "0030"

_NAME = "parked_platform_id_idx"


def upgrade() -> None:
    """Build the index."""
    create_index_concurrently(_NAME, "parked (platform_id, id)")


def downgrade() -> None:
    """Drop the index."""
    drop_index_concurrently(_NAME)
