"""The exceptions of a platform have an index that a look-up of an account's debts cannot use.

Its rows are those of `card_transactions_debt_idx`. As long as the statistics of the table have no
debts, PostgreSQL takes two such indexes for equal in the engine's look-up, and may read every
exception for each account.
"""

from typing import Final

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0144"
down_revision = "0143"

_NAME: Final = "card_transactions_open_exceptions_idx"
_BEFORE: Final = "card_transactions_exceptions_idx"
_COLUMNS: Final = "card_transactions (platform_id, debt_since, id)"


def upgrade() -> None:
    """Build the index and drop the other; the previous release's lists read the index of debts."""
    create_index_concurrently(_NAME, f"{_COLUMNS} WHERE debt_since IS NOT NULL")
    drop_index_concurrently(_BEFORE)


def downgrade() -> None:
    """Build the other index again."""
    create_index_concurrently(_BEFORE, f"{_COLUMNS} WHERE debt_id IS NOT NULL")
    drop_index_concurrently(_NAME)
