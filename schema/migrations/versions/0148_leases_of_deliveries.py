"""The lease of each webhook delivery, which tells an attempt under way from a retry that waits.

The previous release writes no lease: a delivery that it is sending may be sent a second time, under
the same webhook id, when its platform asks for a retry meanwhile.
"""

from typing import Final

from alembic import op

from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view

revision = "0148"
down_revision = "0147"

_RIGHTS: Final = """
DO $$ DECLARE db text := current_database(); BEGIN
    EXECUTE format('GRANT UPDATE (lease_ends_at) ON webhook_deliveries TO %I, %I',
        db || '_webhooks', db || '_app');
END $$
"""


def upgrade() -> None:
    """Add the column, which the senders of webhooks write."""
    add_to_table_and_view("webhook_deliveries", "ADD COLUMN lease_ends_at TIMESTAMPTZ")
    op.execute(
        "COMMENT ON COLUMN webhook_deliveries.lease_ends_at IS 'End of the lease of the last"
        " attempt; while `next_attempt_at` equals it, that attempt is under way.'"
    )
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove the column; a retry that is due within a minute is left to wait again."""
    change_table_below_view("webhook_deliveries", "DROP COLUMN lease_ends_at")
