"""An index of payments whose next step is due, and the checks of older rows."""

from typing import Final

from cardledger.schema.migrations.steps import (
    create_index_concurrently,
    drop_index_concurrently,
    execute_alone,
)

revision = "0083"
down_revision = "0082"

_NAME: Final = "transfers_due_idx"
_CHECKS: Final = ("status", "kind", "conversion", "fee", "peer", "refund")


def upgrade() -> None:
    """Build the index, then check the rows that were there before the constraints."""
    create_index_concurrently(_NAME, "transfers (due_at, id) WHERE due_at IS NOT NULL")
    for check in _CHECKS:
        execute_alone(f"ALTER TABLE transfers VALIDATE CONSTRAINT transfers_{check}_check")


def downgrade() -> None:
    """Drop the index; revision 0080 removes the constraints."""
    drop_index_concurrently(_NAME)
