"""When the money of a deposit arrived, and its reference outside of the ledger."""

from typing import Final

from alembic import op

from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view

revision = "0037"
down_revision = "0036"

_COMMENTS: Final = {
    "occurred_at": "When the money arrived, if the message has it.",
    "external_reference": "Reference of the payment outside of the ledger.",
}


def upgrade() -> None:
    """Add the columns; a worker of the previous release leaves them empty."""
    add_to_table_and_view(
        "deposits",
        "ADD COLUMN occurred_at TIMESTAMP WITH TIME ZONE, ADD COLUMN external_reference TEXT",
    )
    for column, comment in _COMMENTS.items():
        op.execute(f"COMMENT ON COLUMN deposits.{column} IS '{comment}'")


def downgrade() -> None:
    """Remove them."""
    change_table_below_view("deposits", "DROP COLUMN occurred_at, DROP COLUMN external_reference")
