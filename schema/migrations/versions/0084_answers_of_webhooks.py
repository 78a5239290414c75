"""Workers read how a platform has answered when it was asked to approve a payment.

Columns only: not the bodies of webhooks, nor the secrets of endpoints.
"""

from typing import Final

from alembic import op

revision = "0084"
down_revision = "0083"

_COLUMNS: Final = {
    "webhook_deliveries": "id, customer_id, platform_id, type, subject_id, endpoint_id",
    "webhook_attempts": (
        "delivery_id, customer_id, number, attempted_at, duration_ms, status, error, response_head"
    ),
    "webhook_endpoints": "id, is_default",
}


def _for_workers(change: str) -> str:
    return f"""
        DO $$ DECLARE role text;
        BEGIN
            FOREACH role IN ARRAY ARRAY[current_database() || '_worker'] LOOP
                IF to_regrole(quote_ident(role)) IS NOT NULL THEN
                    EXECUTE format('{change} %I', role);
                END IF;
            END LOOP;
        END $$
    """


def upgrade() -> None:
    """Grant the columns."""
    for table, columns in _COLUMNS.items():
        op.execute(_for_workers(f"GRANT SELECT ({columns}) ON {table} TO"))


def downgrade() -> None:
    """Take the rights back."""
    for table, columns in _COLUMNS.items():
        op.execute(_for_workers(f"REVOKE SELECT ({columns}) ON {table} FROM"))
