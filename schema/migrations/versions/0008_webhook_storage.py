"""Webhook deliveries: cleared up as they change, and found by what they tell of."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Have the table vacuumed early and without pauses, and add the index.

    Every delivery is changed twice or more, and each change moves it in the index of what is due:
    what is left behind there lies before whatever is due next. No fillfactor: a change of an
    indexed column cannot stay on its page, so room there would only make the table larger.
    """
    op.execute(
        "ALTER TABLE webhook_deliveries"
        " SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0)"
    )
    op.execute(
        "CREATE INDEX webhook_deliveries_subject_id_idx"
        " ON webhook_deliveries (platform_id, subject_id, id)"
    )


def downgrade() -> None:
    """Undo both."""
    op.execute("DROP INDEX webhook_deliveries_subject_id_idx")
    op.execute(
        "ALTER TABLE webhook_deliveries"
        " RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_cost_delay)"
    )
