"""Rows that were there before they were counted are counted."""

from typing import Final

from cardledger.schema.migrations.steps import change_in_pages

revision = "0029"
down_revision = "0028"

_RESOURCES: Final = (
    "agent_actions",
    "agents",
    "beneficial_owners",
    "cards",
    "customers",
    "external_accounts",
    "transfers",
    "verifications",
    "webhook_endpoints",
)

# One statement sees one state: the rows that the trigger has counted are among those of the table.
_COUNT: Final = """
    INSERT INTO row_counts (platform_id, resource, slot, rows)
    SELECT p.id, '{resource}', 16,
        (SELECT count(*) FROM {resource} t WHERE t.platform_id = p.id)
        - coalesce((
            SELECT sum(c.rows) FROM row_counts c
            WHERE c.platform_id = p.id AND c.resource = '{resource}'
        ), 0)
    FROM platforms p
    WHERE NOT EXISTS (
        SELECT FROM row_counts c
        WHERE c.platform_id = p.id AND c.resource = '{resource}' AND c.slot = 16
    )
    LIMIT 10
"""

# Whose rows come near the quota of every platform may have twice as many.
_EXCEPTIONS: Final = """
    INSERT INTO row_quotas (platform_id, resource, rows)
    SELECT c.platform_id, c.resource, 2 * sum(c.rows)
    FROM row_counts c JOIN row_quotas q USING (resource)
    WHERE q.platform_id = '00000000-0000-0000-0000-000000000000'
        AND NOT EXISTS (
            SELECT FROM row_quotas own
            WHERE own.platform_id = c.platform_id AND own.resource = c.resource
        )
    GROUP BY c.platform_id, c.resource, q.rows HAVING 2 * sum(c.rows) > q.rows
    LIMIT 1000
"""


def upgrade() -> None:
    """Count what is there, while others insert; a second run counts nothing twice."""
    for resource in _RESOURCES:
        change_in_pages(_COUNT.format(resource=resource))
    change_in_pages(_EXCEPTIONS)


def downgrade() -> None:
    """Leave the counts, which are right."""
