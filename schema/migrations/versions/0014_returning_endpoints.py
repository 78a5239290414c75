"""Deleted endpoints whose deliveries have ended are marked; disabled ones can collect webhooks."""

from typing import Final

from alembic import op

revision = "0014"
down_revision = "0013"

_UP: Final = (
    # First, because it waits for a VACUUM of the table: the others hold a lock that requests need.
    (
        "COMMENT ON COLUMN webhook_deliveries.endpoint_id IS"
        " 'The endpoint; null: stored for replays, because endpoints missed it or there was none.'"
    ),
    (
        "ALTER TABLE webhook_endpoints ADD COLUMN discarded_at TIMESTAMP WITH TIME ZONE,"
        " ADD COLUMN collects_until TIMESTAMP WITH TIME ZONE"
    ),
    (
        "COMMENT ON COLUMN webhook_endpoints.discarded_at IS"
        " 'When no delivery to it was pending any more after its deletion; null: not yet.'"
    ),
    (
        "COMMENT ON COLUMN webhook_endpoints.collects_until IS"
        " 'Until when webhooks wait for it although it is disabled; null: it misses them.'"
    ),
    (
        "COMMENT ON COLUMN webhook_endpoints.state IS"
        " 'ENABLED or DISABLED; a disabled endpoint misses new webhooks, pending deliveries wait.'"
    ),
)
_RIGHT: Final = """
DO $$ DECLARE role text := current_database() || '_app'; BEGIN
    EXECUTE format('GRANT UPDATE (discarded_at, collects_until) ON webhook_endpoints TO %I', role);
END $$
"""
_DOWN: Final = (
    "ALTER TABLE webhook_endpoints DROP COLUMN discarded_at, DROP COLUMN collects_until",
    (
        "COMMENT ON COLUMN webhook_endpoints.state IS"
        " 'ENABLED or DISABLED; deliveries to a disabled endpoint wait.'"
    ),
    (
        "COMMENT ON COLUMN webhook_deliveries.endpoint_id IS"
        " 'The endpoint; null: no endpoint was configured.'"
    ),
)


def upgrade() -> None:
    """Add the columns, with the application's rights, and correct two comments."""
    for statement in (*_UP, _RIGHT):
        op.execute(statement)


def downgrade() -> None:
    """Remove the columns; the rights go with them."""
    for statement in _DOWN:
        op.execute(statement)
