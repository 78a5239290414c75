"""Quotes that were deleted before schema 0139 no longer count against a quota."""

from typing import Final

from cardledger.schema.migrations.steps import change_in_pages

revision = "0140"
down_revision = "0139"

# One statement sees one state: both triggers count with the rows themselves. Where count and rows
# are equal it changes nothing, so it can be repeated.
_SUBTRACT: Final = """
    INSERT INTO row_counts AS c (platform_id, resource, slot, rows)
    SELECT counted.platform_id, 'quotes', 16, coalesce(quotes.rows, 0) - counted.rows
    FROM (
        SELECT platform_id, sum(rows) AS rows FROM row_counts
        WHERE resource = 'quotes' GROUP BY platform_id
    ) counted
    LEFT JOIN (SELECT platform_id, count(*) AS rows FROM quotes GROUP BY platform_id) quotes
        ON quotes.platform_id = counted.platform_id
    WHERE counted.rows <> coalesce(quotes.rows, 0)
    LIMIT 1000000
    ON CONFLICT (platform_id, resource, slot) DO UPDATE SET rows = c.rows + excluded.rows
"""


def upgrade() -> None:
    """Make the counts those of the rows, while others insert and delete."""
    change_in_pages(_SUBTRACT)


def downgrade() -> None:
    """Leave the counts, which are right."""
