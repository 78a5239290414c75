"""Views of a card's number are counted: the page lives five minutes for its first browser."""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the count, 1 for pages that were opened, and let the application update it."""
    op.execute("ALTER TABLE card_reveals ADD COLUMN view_count INTEGER NOT NULL DEFAULT 0")
    op.execute("UPDATE card_reveals SET view_count = 1 WHERE opened_at IS NOT NULL")
    op.execute(
        "COMMENT ON COLUMN card_reveals.view_count IS"
        " 'How often the page was opened, always by the browser that opened it first.'"
    )
    op.execute(
        "DO $$ DECLARE role text := current_database() || '_app'; BEGIN"
        " EXECUTE format('GRANT UPDATE (view_count) ON card_reveals TO %I', role); END $$"
    )


def downgrade() -> None:
    """Remove the count."""
    op.execute("ALTER TABLE card_reveals DROP COLUMN view_count")
