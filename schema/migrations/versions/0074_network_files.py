"""Settlement files of networks: lines, matches, breaks, proofs and refusals."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0074"
down_revision = "0073"

_APPEND_ONLY: Final = (
    "network_file_totals",
    "network_lines",
    "line_matches",
    "break_history",
    "file_proofs",
    "file_refusals",
)
_TABLES: Final = f"{', '.join(_APPEND_ONLY)}, breaks, network_files"

# Names in a function with the rights of its owner must not be looked up where its caller says.
_RIGHTS: Final = f"""
DO $$ BEGIN
    REVOKE EXECUTE ON FUNCTION refuse_unfinished_file() FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION refuse_unfinished_file() SET search_path = %I, pg_temp',
        current_schema());
    EXECUTE format('GRANT SELECT ON {_TABLES} TO %I, %I', current_database() || '_app',
        current_database() || '_reader');
END $$
"""


def upgrade() -> None:
    """Create the tables with their guards."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for table in _APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove them: files can be imported again."""
    op.execute(f"DROP TABLE {_TABLES}")
    op.execute("DROP FUNCTION refuse_unfinished_file()")
