"""Rows that were there before they were counted are counted; then the quotas hold."""

from typing import Final

from cardledger.schema.migrations.steps import change_in_pages

revision = "0029"
down_revision = "0028"

_QUOTAS: Final = {
    "agent_actions": 10_000_000,
    "agents": 100_000,
    "beneficial_owners": 1_000_000,
    "cards": 5_000_000,
    "customers": 1_000_000,
    "external_accounts": 5_000_000,
    "transfers": 50_000_000,
    "verifications": 5_000_000,
    "webhook_endpoints": 10_000,
}
_EVERY_PLATFORM: Final = "00000000-0000-0000-0000-000000000000"

# One statement for all platforms, because not every table has an index by platform; and it sees one
# state: the rows that the trigger has counted are among those of the table.
_COUNT: Final = """
    INSERT INTO row_counts (platform_id, resource, slot, rows)
    SELECT p.id, '{resource}', 16, coalesce(t.rows, 0) - coalesce(c.rows, 0)
    FROM platforms p
    LEFT JOIN (SELECT platform_id, count(*) AS rows FROM {resource} GROUP BY platform_id) t
        ON t.platform_id = p.id
    LEFT JOIN (
        SELECT platform_id, sum(rows) AS rows FROM row_counts
        WHERE resource = '{resource}' GROUP BY platform_id
    ) c ON c.platform_id = p.id
    WHERE NOT EXISTS (
        SELECT FROM row_counts r
        WHERE r.platform_id = p.id AND r.resource = '{resource}' AND r.slot = 16
    )
    LIMIT 1000000
"""

# A platform that has more than half of a quota by then may have twice what it has. In one statement
# with the quota of every platform, so that no platform is refused in between.
_ALLOW: Final = """
    INSERT INTO row_quotas (platform_id, resource, rows)
    SELECT * FROM (
        SELECT '{every}'::uuid, '{resource}', {rows}
        UNION ALL
        SELECT platform_id, resource, 2 * sum(rows) FROM row_counts
        WHERE resource = '{resource}'
        GROUP BY platform_id, resource HAVING 2 * sum(rows) > {rows}
    ) quota
    WHERE NOT EXISTS (
        SELECT FROM row_quotas q WHERE q.platform_id = '{every}' AND q.resource = '{resource}'
    )
    LIMIT 1000000
"""


def upgrade() -> None:
    """Count what is there, while others insert; a second run counts nothing twice."""
    for resource, rows in _QUOTAS.items():
        change_in_pages(_COUNT.format(resource=resource))
        change_in_pages(_ALLOW.format(every=_EVERY_PLATFORM, resource=resource, rows=rows))


def downgrade() -> None:
    """Leave counts and quotas, which are right while the triggers are there."""
