"""Webhook deliveries: cleared up as they change, and found by what they tell of."""

from alembic import op

revision = "0008"
down_revision = "0007"

# Pending webhooks of accounts have other field names from this revision on: the dispatcher of the
# new release must be able to render them.
_IN_THESE_WORDS = """
UPDATE outbox SET data = (
    data::jsonb - '{id,customerId,createdAt,updatedAt}'::text[] || jsonb_build_object(
        'created_at', data->'createdAt', 'updated_at', data->'updatedAt'))::json
    WHERE type = 'INTERNAL_ACCOUNT.BALANCE_UPDATED'
"""
_IN_THOSE_BEFORE = """
UPDATE outbox SET data = (
    data::jsonb - '{created_at,updated_at}'::text[] || jsonb_build_object(
        'id', 'InternalAccount:' || subject_id, 'customerId', 'Customer:' || customer_id,
        'createdAt', data->'created_at', 'updatedAt', data->'updated_at'))::json
    WHERE type = 'INTERNAL_ACCOUNT.BALANCE_UPDATED'
"""


def upgrade() -> None:
    """Have the table vacuumed early and without pauses, add the index, and translate what waits.

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
    op.execute(_IN_THESE_WORDS)


def downgrade() -> None:
    """Undo all three."""
    op.execute(_IN_THOSE_BEFORE)
    op.execute("DROP INDEX webhook_deliveries_subject_id_idx")
    op.execute(
        "ALTER TABLE webhook_deliveries"
        " RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_cost_delay)"
    )
