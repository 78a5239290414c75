"""Jobs that create a customer for each row of a file."""

from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations.views import create_view

revision = "0070"
down_revision = "0069"

_RIGHTS: Final = {
    "customer_uploads": (
        "SELECT, INSERT, DELETE,"
        " UPDATE (status, processed, successful, failed, errors, completed_at, updated_at)"
    ),
    "customer_upload_parts": "SELECT, INSERT, DELETE",
}

_INSTALLATION: Final = """
DO $$ BEGIN
    -- Whose jobs are to be done, or deleted?
    EXECUTE format('GRANT SELECT (id, platform_id, status, completed_at) ON customer_uploads TO %I',
        current_database() || '_api');
    EXECUTE format('GRANT SELECT ON customer_uploads, customer_upload_parts TO %I',
        current_database() || '_reader');
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
    """Remove them, with the jobs that are not finished."""
    for table in reversed(_RIGHTS):
        op.execute(
            f"DO $$ BEGIN EXECUTE format('DROP VIEW %I.{table}', current_schema() || '_api');"
            " END $$"
        )
        op.execute(f"DROP TABLE {table}")
