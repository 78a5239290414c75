"""Documents of customers and beneficial owners, with their files in a table of their own."""

from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations.views import create_view

revision = "0069"
down_revision = "0068"

_CHANGED: Final = (
    "document_type, side, country, document_number, issuing_authority, file_name, media_type, size,"
    " content_key, submitted_at, delete_after, updated_at"
)
_RIGHTS: Final = {
    "documents": f"SELECT, INSERT, UPDATE ({_CHANGED}), DELETE",
    "document_contents": "SELECT (document_id, platform_id), INSERT, UPDATE (content), DELETE",
    "document_usage": "SELECT, INSERT, UPDATE (bytes)",
}


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


_INSTALLATION: Final = """
DO $$ DECLARE
    api text := current_database() || '_api';
    reader text := current_database() || '_reader';
BEGIN
    -- Whose documents are due to be deleted?
    EXECUTE format('GRANT SELECT (platform_id, delete_after) ON documents TO %I', api);
    EXECUTE format('GRANT SELECT (id, platform_id, customer_id, beneficial_owner_id, document_type,'
        ' side, country, issuing_authority, file_name, media_type, size, submitted_at,'
        ' delete_after, created_at, updated_at) ON documents TO %I', reader);
    EXECUTE format('GRANT SELECT (document_id, platform_id) ON document_contents TO %I', reader);
    EXECUTE format('GRANT SELECT ON document_usage TO %I', reader);
END $$
"""


def downgrade() -> None:
    """Remove them, with what was uploaded."""
    for table in ("document_usage", "document_contents", "documents"):
        op.execute(
            f"DO $$ BEGIN EXECUTE format('DROP VIEW %I.{table}', current_schema() || '_api');"
            " END $$"
        )
        op.execute(f"DROP TABLE {table}")
