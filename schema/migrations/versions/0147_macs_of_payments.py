"""The MAC of the terms of each transfer or payment, without which it moves nothing.

It is a revision of its own, so that no more than one table is locked at a time. A release that
knows it signs quotes, too: `schema/compatibility.py`.
"""

from typing import Final

from alembic import op

from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view

revision = "0147"
down_revision = "0146"

# By the view: the former role of all processes and the workers may insert a whole row.
_RIGHTS: Final = """
DO $$ BEGIN
    EXECUTE format('GRANT INSERT (mac) ON %I.transfers TO %I',
        current_schema() || '_api', current_database() || '_api');
END $$
"""


def upgrade() -> None:
    """Add the column; who requests a payment may write it, and never change it."""
    add_to_table_and_view("transfers", "ADD COLUMN mac BYTEA")
    op.execute(
        "COMMENT ON COLUMN transfers.mac IS 'MAC of its terms, which are all columns that never"
        " change, by the process that requested it; null: it has arrived, or was requested by a"
        " release before schema 0147.'"
    )
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove the column; every payment is carried out as it stands."""
    change_table_below_view("transfers", "DROP COLUMN mac")
