"""Views of a card's number are counted: the page lives five minutes for its first browser."""

from alembic import op

revision = "0010"
down_revision = "0008"

_OPENED = "COMMENT ON COLUMN card_reveals.opened_at IS"


def upgrade() -> None:
    """Add the count, 1 for what was opened before, and let the application update it."""
    op.execute("ALTER TABLE card_reveals ADD COLUMN view_count INTEGER NOT NULL DEFAULT 0")
    op.execute("UPDATE card_reveals SET view_count = 1 WHERE opened_at IS NOT NULL")
    op.execute(
        "COMMENT ON COLUMN card_reveals.view_count IS"
        " 'How often the page was opened, always by the browser that opened it first.'"
    )
    op.execute(f"{_OPENED} 'When the page was first opened; null: not yet.'")
    op.execute(
        "DO $$ DECLARE role text := current_database() || '_app'; BEGIN"
        " EXECUTE format('GRANT UPDATE (view_count) ON card_reveals TO %I', role); END $$"
    )


def downgrade() -> None:
    """Remove the count."""
    op.execute("ALTER TABLE card_reveals DROP COLUMN view_count")
    op.execute(f"{_OPENED} 'When the page was opened, which happens once; null: not.'")
