"""Say what a time before 1970 means of a delivery: a request for approval, which goes first."""

from alembic import op

revision = "0152"
down_revision = "0151"


def upgrade() -> None:
    """Change the comment; the senders write such times (`schema.tables.webhooks`)."""
    op.execute(
        "COMMENT ON COLUMN webhook_deliveries.next_attempt_at IS 'When the next attempt is due;"
        " from the year 9999 on: waits for an earlier delivery; before 1970: a request for"
        " approval, due 36,525 days later; null: none.'"
    )


def downgrade() -> None:
    """Say nothing of them again."""
    op.execute(
        "COMMENT ON COLUMN webhook_deliveries.next_attempt_at IS 'When the next attempt is due;"
        " from the year 9999 on: waits for an earlier delivery; null: none.'"
    )
