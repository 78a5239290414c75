"""Rows of resources are counted by platform as they are inserted, and refused above the quota."""

from typing import Final

from cardledger.schema.migrations.steps import change_in_pages, execute_alone

revision = "0028"
down_revision = "0027"

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


def upgrade() -> None:
    """Create the triggers, each with a short lock of its table."""
    for resource in _RESOURCES:
        execute_alone(
            f"CREATE OR REPLACE TRIGGER row_count AFTER INSERT ON {resource}"
            " REFERENCING NEW TABLE AS written"
            " FOR EACH STATEMENT EXECUTE FUNCTION count_rows()"
        )


def downgrade() -> None:
    """Remove the triggers, then what they have counted: it is not right any more."""
    for resource in _RESOURCES:
        execute_alone(f"DROP TRIGGER IF EXISTS row_count ON {resource}")
    for table in ("row_quotas", "row_counts"):
        change_in_pages(f"DELETE FROM {table} WHERE ctid IN (SELECT ctid FROM {table} LIMIT 1000)")
