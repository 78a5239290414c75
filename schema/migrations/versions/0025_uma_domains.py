"""A domain of UMA addresses belongs to one platform, which an index says."""

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0025"
down_revision = "0024"

_NAME = "platforms_uma_domain_key"


def upgrade() -> None:
    """Build the index; it fails while two platforms have one domain."""
    create_index_concurrently(_NAME, "platforms (uma_domain)", is_unique=True)


def downgrade() -> None:
    """Drop the index."""
    drop_index_concurrently(_NAME)
