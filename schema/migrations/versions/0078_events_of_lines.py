"""A missing event is made of its line in a settlement file."""

from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import finance

revision = "0078"
down_revision = "0077"

# Names in a function with the rights of its owner must not be looked up where its caller says.
_RIGHTS: Final = """
DO $$ BEGIN
    REVOKE EXECUTE ON FUNCTION make_event_of_break(uuid, text) FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION make_event_of_break(uuid, text) SET search_path = %I, pg_temp',
        current_schema());
END $$
"""

_FOR_PEOPLE: Final = """
CREATE FUNCTION finance.make_event(break_id uuid, note text) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT make_event_of_break(make_event.break_id, make_event.note);
END;
COMMENT ON FUNCTION finance.make_event(uuid, text) IS
    'Enqueue the event that a line IN_FILE_ONLY is. Returns the state of its break.';
"""


def upgrade() -> None:
    """Create the functions, for exactly the people who may."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(_RIGHTS)
    finance.run(_FOR_PEOPLE)
    finance.grant()
    finance.grant_to_people("approve", ["make_event(uuid, text)"])


def downgrade() -> None:
    """Remove them."""
    finance.run("DROP FUNCTION finance.make_event(uuid, text)")
    op.execute("DROP FUNCTION make_event_of_break(uuid, text)")
