"""The beginning of the books can be set before the first period is closed."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0063"
down_revision = "0062"

_FUNCTIONS: Final = (
    "begin_books(date)",
    "moved_by_beginning(date, date, timestamp with time zone)",
)

# Names in a function with the rights of its owner must not be looked up where its caller says.
_RIGHTS: Final = f"""
DO $$
DECLARE
    path text := format('SET search_path = %I, pg_temp', current_schema());
    name text;
BEGIN
    REVOKE EXECUTE ON FUNCTION {", ".join(_FUNCTIONS)} FROM PUBLIC;
    FOREACH name IN ARRAY ARRAY[{", ".join(f"'{name}'" for name in _FUNCTIONS)}] LOOP
        EXECUTE format('ALTER FUNCTION %s %s', name, path);
    END LOOP;
    EXECUTE format('GRANT SELECT ON book_beginnings TO %I, %I', current_database() || '_app',
        current_database() || '_reader');
END $$
"""


def upgrade() -> None:
    """Create the table and the function; the books begin where they do."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove them; the books begin where they do."""
    op.execute(f"DROP FUNCTION {', '.join(_FUNCTIONS)}")
    op.execute("DROP TABLE book_beginnings")
