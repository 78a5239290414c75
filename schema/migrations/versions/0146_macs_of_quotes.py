"""The MAC of the terms of each quote, without which it is not executed."""

from alembic import op

from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view

revision = "0146"
down_revision = "0145"


def upgrade() -> None:
    """Add the column; who inserts a quote by the view may write it, and never change it."""
    add_to_table_and_view("quotes", "ADD COLUMN mac BYTEA")
    op.execute(
        "COMMENT ON COLUMN quotes.mac IS 'MAC of its terms, which are all columns but the status"
        " and its times, by the process that made it; null: made by a release before schema 0147.'"
    )


def downgrade() -> None:
    """Remove the column; every quote is executed as it stands."""
    change_table_below_view("quotes", "DROP COLUMN mac")
