"""Entries are found by their time in spans of 32 pages of the table instead of 128."""

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0047"
down_revision = "0046"

_NAME = "entries_recorded_idx"
_FORMER = "entries_recorded_at_idx"


def upgrade() -> None:
    """Build the index, then drop the former one; the table is read once."""
    create_index_concurrently(_NAME, "entries USING brin (recorded_at) WITH (pages_per_range = 32)")
    drop_index_concurrently(_FORMER)


def downgrade() -> None:
    """Build the former index again, then drop the other."""
    create_index_concurrently(_FORMER, "entries USING brin (recorded_at)")
    drop_index_concurrently(_NAME)
