"""Bind each device code to its agent, so that a row of another agent does not redeem it.

Codes of the previous release have no such hash and are refused: they live for a quarter of an hour,
and the platform requests another one.
"""

from alembic import op

from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view

revision = "0151"
down_revision = "0150"


def upgrade() -> None:
    """Add the column, which the API writes."""
    add_to_table_and_view("agent_device_codes", "ADD COLUMN agent_hash BYTEA")
    op.execute(
        "COMMENT ON COLUMN agent_device_codes.agent_hash IS 'HMAC-SHA-256 of code and agent under"
        " the server key, so that the code connects no other agent; null: of a release before 0151,"
        " which connects none.'"
    )


def downgrade() -> None:
    """Remove the column."""
    change_table_below_view("agent_device_codes", "DROP COLUMN agent_hash")
