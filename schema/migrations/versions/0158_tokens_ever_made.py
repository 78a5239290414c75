"""Tokens are counted as they are made: the client id of each is kept for good."""

from typing import Final

from cardledger.schema.migrations.steps import change_in_pages, execute_alone

revision = "0158"
down_revision = "0157"

_EVERY_PLATFORM: Final = "00000000-0000-0000-0000-000000000000"
_QUOTA: Final = 100_000

_TRIGGER: Final = """
CREATE OR REPLACE TRIGGER row_count AFTER INSERT ON api_tokens
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION count_rows()
"""

# One statement sees one state: the rows that the trigger has counted are among those of the table.
# Tokens that were deleted before are not counted: their client ids do not say of which platform.
_COUNT: Final = """
    INSERT INTO row_counts (platform_id, resource, slot, rows)
    SELECT p.id, 'api_tokens', 16, greatest(0, coalesce(t.rows, 0) - coalesce(c.rows, 0))
    FROM platforms p
    LEFT JOIN (SELECT platform_id, count(*) AS rows FROM api_tokens GROUP BY platform_id) t
        ON t.platform_id = p.id
    LEFT JOIN (
        SELECT platform_id, sum(rows) AS rows FROM row_counts
        WHERE resource = 'api_tokens' GROUP BY platform_id
    ) c ON c.platform_id = p.id
    WHERE NOT EXISTS (
        SELECT FROM row_counts r
        WHERE r.platform_id = p.id AND r.resource = 'api_tokens' AND r.slot = 16
    )
    LIMIT 1000000
"""

_ALLOW: Final = f"""
    INSERT INTO row_quotas (platform_id, resource, rows)
    SELECT '{_EVERY_PLATFORM}', 'api_tokens', {_QUOTA}
    WHERE NOT EXISTS (
        SELECT FROM row_quotas
        WHERE platform_id = '{_EVERY_PLATFORM}' AND resource = 'api_tokens'
    )
    LIMIT 1
"""

_FORGET: Final = """
    DELETE FROM {table} WHERE ctid IN (
        SELECT ctid FROM {table} WHERE resource = 'api_tokens' LIMIT 1000)
"""


def upgrade() -> None:
    """Count what is made from now on, then what is there; a second run counts nothing twice."""
    execute_alone(_TRIGGER)
    change_in_pages(_COUNT)
    change_in_pages(_ALLOW)


def downgrade() -> None:
    """Remove the trigger, then what it has counted: it is not right any more."""
    execute_alone("DROP TRIGGER IF EXISTS row_count ON api_tokens")
    for table in ("row_quotas", "row_counts"):
        change_in_pages(_FORGET.format(table=table))
