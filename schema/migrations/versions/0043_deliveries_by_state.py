"""Deliveries of webhooks are listed by any state, delivered ones too."""

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0043"
down_revision = "0042"

_NAME = "webhook_deliveries_by_state_idx"
_FORMER = "webhook_deliveries_state_idx"  # It left out delivered ones.


def upgrade() -> None:
    """Build the index of all states, then drop the former one."""
    create_index_concurrently(_NAME, "webhook_deliveries (platform_id, state, id)")
    drop_index_concurrently(_FORMER)


def downgrade() -> None:
    """Build the former index again, then drop the other."""
    create_index_concurrently(
        _FORMER, "webhook_deliveries (platform_id, state, id) WHERE state <> 'DELIVERED'"
    )
    drop_index_concurrently(_NAME)
