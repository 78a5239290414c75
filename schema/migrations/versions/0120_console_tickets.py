"""Tickets that open a session of the console."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0120"
down_revision = "0113"

_RIGHTS: Final = {
    "app": "SELECT, INSERT, DELETE",
    "api": "SELECT, INSERT, DELETE",
    "reader": "SELECT (api_token_id, created_at, expires_at)",
}

# When were the books verified last?
_GRANT: Final = """
DO $$ BEGIN
    EXECUTE format('GRANT SELECT (id, verified_at) ON book_verifications TO %I',
        current_database() || '_api');
END $$
"""

_REVOKE: Final = """
DO $$ DECLARE
    api text := current_database() || '_api';
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = api) THEN
        EXECUTE format('REVOKE SELECT (id, verified_at) ON book_verifications FROM %I', api);
    END IF;
END $$
"""


def upgrade() -> None:
    """Create the table; it is read before the platform is known, so it has no view."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for suffix, rights in _RIGHTS.items():
        op.execute(
            f"DO $$ BEGIN EXECUTE format('GRANT {rights} ON console_tickets TO %I',"
            f" current_database() || '_{suffix}'); END $$"
        )
    op.execute(_GRANT)


def downgrade() -> None:
    """Remove it: tickets end, sessions stay."""
    op.execute(_REVOKE)
    op.execute("DROP TABLE console_tickets")
