"""Agents execute quotes, and spend in other currencies than those of their limits."""

from typing import Final

from alembic import op

from cardledger.schema.migrations.views import add_to_table_and_view, change_table_below_view

revision = "0087"
down_revision = "0086"

_TYPES: Final = "'TRANSFER_OUT', 'TRANSFER_IN'"


def upgrade() -> None:
    """Let actions execute quotes, and say what they spend in the currency of the limits."""
    add_to_table_and_view(
        "agent_actions",
        "ADD COLUMN measured_amount BIGINT, ADD COLUMN measured_currency TEXT",
    )
    op.execute(
        "COMMENT ON COLUMN agent_actions.measured_amount IS"
        " 'What it spends in the currency of the limits of the agent, where that is another one:"
        " as it was converted at the request; null: in the currency of the transfer.'"
    )
    op.execute(
        "COMMENT ON COLUMN agent_actions.measured_currency IS 'Currency of `measured_amount`.'"
    )
    op.execute(
        "COMMENT ON COLUMN agent_actions.type IS 'TRANSFER_OUT, TRANSFER_IN or EXECUTE_QUOTE.'"
    )
    _allow(f"{_TYPES}, 'EXECUTE_QUOTE'")


def downgrade() -> None:
    """Allow transfers only; what is recorded of quotes stays, without what it was measured by."""
    _allow(_TYPES)
    change_table_below_view(
        "agent_actions", "DROP COLUMN measured_amount, DROP COLUMN measured_currency"
    )
    op.execute("COMMENT ON COLUMN agent_actions.type IS 'TRANSFER_OUT or TRANSFER_IN.'")


def _allow(types: str) -> None:
    op.execute(
        "ALTER TABLE agent_actions DROP CONSTRAINT agent_actions_type_check,"
        f" ADD CONSTRAINT agent_actions_type_check CHECK (type IN ({types})) NOT VALID"
    )
