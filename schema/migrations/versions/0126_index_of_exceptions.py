"""The exceptions of a platform are found in the order of their age."""

from typing import Final

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0126"
down_revision = "0125"

_NAME: Final = "card_transactions_exceptions_idx"


def upgrade() -> None:
    """Build the index; it has the rows that owe money only, so that others cost nothing."""
    create_index_concurrently(
        _NAME, "card_transactions (platform_id, debt_since, id) WHERE debt_id IS NOT NULL"
    )


def downgrade() -> None:
    """Drop it."""
    drop_index_concurrently(_NAME)
