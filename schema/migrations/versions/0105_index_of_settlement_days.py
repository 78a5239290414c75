"""The events of a settlement day are found without reading those of all days."""

from cardledger.schema.migrations.steps import create_index_concurrently, drop_index_concurrently

revision = "0105"
down_revision = "0104"


def upgrade() -> None:
    """Build the index while events are recorded.

    Details are recorded in about the order of their days: a BRIN index has some pages for a million
    rows, and costs a batch next to nothing.
    """
    create_index_concurrently(
        "settlement_details_day_idx",
        "settlement_details USING brin (settlement_date) WITH (pages_per_range = 32)",
    )


def downgrade() -> None:
    """Drop it."""
    drop_index_concurrently("settlement_details_day_idx")
