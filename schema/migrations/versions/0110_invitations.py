"""Invitations to get a UMA address, which customers of any platform claim."""

from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations.views import create_view

revision = "0110"
down_revision = "0108"

_EVERY_PLATFORM: Final = "00000000-0000-0000-0000-000000000000"
_QUOTA: Final = 10_000_000

_RIGHTS: Final = "SELECT, INSERT, UPDATE (status)"

_FUNCTIONS: Final = (
    "find_invitation(text)",
    "claim_invitation(text, text, timestamp with time zone, uuid, json)",
)

_INSTALLATION: Final = f"""
DO $$ BEGIN
    EXECUTE format('GRANT {_RIGHTS} ON invitations TO %I', current_database() || '_app');
    EXECUTE format('GRANT SELECT ON invitations TO %I', current_database() || '_reader');
END $$
"""

# Names in a function with the rights of its owner must not be looked up where its caller says.
_CALLERS: Final = """
DO $$ DECLARE
    db text := current_database();
BEGIN
    REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION {function} SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('GRANT EXECUTE ON FUNCTION {function} TO %I, %I', db || '_api', db || '_app');
END $$
"""


def upgrade() -> None:
    """Create the table with its view for one platform, and the functions."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(
        "CREATE TRIGGER row_count AFTER INSERT ON invitations"
        " REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION count_rows()"
    )
    op.execute(
        "INSERT INTO row_quotas (platform_id, resource, rows)"
        f" VALUES ('{_EVERY_PLATFORM}', 'invitations', {_QUOTA}) ON CONFLICT DO NOTHING"
    )
    create_view("invitations", _RIGHTS)
    op.execute(_INSTALLATION)
    for function in _FUNCTIONS:
        op.execute(_CALLERS.format(function=function))


def downgrade() -> None:
    """Remove them; the invitations of a platform count against its quota all the same."""
    for function in reversed(_FUNCTIONS):
        op.execute(f"DROP FUNCTION {function}")
    op.execute(
        "DO $$ BEGIN EXECUTE format('DROP VIEW %I.invitations', current_schema() || '_api'); END $$"
    )
    op.execute("DROP TABLE invitations")
