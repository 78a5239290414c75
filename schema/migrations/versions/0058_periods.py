"""Periods that are closed by two people, their seals, and what refuses an entry in a closed day.

The trigger that uses `refuse_closed_day` comes with the next revision, what people call with the
one after it.
"""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0058"
down_revision = "0057"

_APPEND_ONLY: Final = ("closing_exceptions", "seals", "book_verifications")
_TABLES: Final = f"{', '.join(_APPEND_ONLY)}, closings, closing_kinds"
_FUNCTIONS: Final = (
    "refuse_closed_day()",
    "end_of_business_day(date)",
    "find_closing(uuid)",
    "refuse_second_request()",
    "lock_books()",
    "prepare_closing(date, date, jsonb)",
    "prepare_reopening(uuid, text)",
    "approve_closing(uuid)",
    "seal_closing(uuid, integer, text, bigint)",
    "reject_closing(uuid, text)",
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
    EXECUTE format('GRANT SELECT ON {_TABLES} TO %I, %I', current_database() || '_app',
        current_database() || '_reader');
    -- Who verified, and when, is written by the database.
    EXECUTE format('GRANT INSERT (days) ON book_verifications TO %I', current_database() || '_app');
END $$
"""


def upgrade() -> None:
    """Create the tables and functions; nothing is closed yet."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for table in _APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove them; what is closed stays closed for the engine (`books.first_open_day`)."""
    op.execute(f"DROP FUNCTION {', '.join(reversed(_FUNCTIONS))}")
    op.execute(f"DROP TABLE {_TABLES}")
