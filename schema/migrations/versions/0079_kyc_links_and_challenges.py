"""Links to a hosted verification, and challenges of external accounts."""

from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations.views import create_view

revision = "0079"
down_revision = "0078"

_RIGHTS: Final = {
    "kyc_links": "SELECT, INSERT, UPDATE (used_at), DELETE",
    "external_account_challenges": "SELECT, INSERT, UPDATE (attempts)",
}

_INSTALLATION: Final = """
DO $$ DECLARE
    api text := current_database() || '_api';
    reader text := current_database() || '_reader';
BEGIN
    -- Whose link is it, and whose are old?
    EXECUTE format('GRANT SELECT (token_hash, platform_id, expires_at) ON kyc_links TO %I', api);
    EXECUTE format('GRANT SELECT (platform_id, customer_id, redirect_uri, created_at, expires_at,'
        ' used_at) ON kyc_links TO %I', reader);
    EXECUTE format('GRANT SELECT ON external_account_challenges TO %I', reader);
END $$
"""


def upgrade() -> None:
    """Create the tables, and their views for one platform."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for table, rights in _RIGHTS.items():
        create_view(table, rights)
        op.execute(
            f"DO $$ BEGIN EXECUTE format('GRANT {rights} ON {table} TO %I',"
            " current_database() || '_app'); END $$"
        )
    op.execute(_INSTALLATION)


def downgrade() -> None:
    """Remove them: links end, and accounts that wait for an answer stay PENDING."""
    for table in reversed(_RIGHTS):
        op.execute(
            f"DO $$ BEGIN EXECUTE format('DROP VIEW %I.{table}', current_schema() || '_api');"
            " END $$"
        )
        op.execute(f"DROP TABLE {table}")
