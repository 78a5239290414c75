"""What counts against the caps of a platform is found by an index, whatever was deleted before."""

from typing import Final

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0013"
down_revision = "0012"

_INDEXES: Final = {
    "agents_live_idx": "agents (platform_id) WHERE deleted_at IS NULL",
    "agent_device_codes_agent_id_idx": "agent_device_codes (agent_id, expires_at)",
    "webhook_endpoints_live_idx": "webhook_endpoints (platform_id) WHERE deleted_at IS NULL",
}


def upgrade() -> None:
    """Build the indexes, one by one."""
    for name, on in _INDEXES.items():
        create_index_concurrently(name, on)


def downgrade() -> None:
    """Drop the indexes."""
    for name in _INDEXES:
        drop_index_concurrently(name)
