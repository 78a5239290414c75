"""Adjustments: corrections of the books that one person prepares and another approves."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0061"
down_revision = "0060"

# People have no right here: they act by functions of the schema for finance. Used as the trigger of
# a table of the caller's own, the first function would say what there is in tables that the caller
# may not read.
_RIGHTS: Final = """
DO $$ DECLARE
    app text := current_database() || '_app';
    worker text := current_database() || '_worker';
BEGIN
    REVOKE EXECUTE ON FUNCTION prepare_adjustment(), guard_adjustment() FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION prepare_adjustment() SET search_path = %I, pg_temp',
        current_schema());
    EXECUTE format('GRANT SELECT ON adjustments TO %I, %I, %I', app, worker,
        current_database() || '_reader');
    EXECUTE format('GRANT UPDATE (state, booked_at, refusal) ON adjustments TO %I, %I',
        app, worker);
END $$
"""


_NOTHING_WAS_BOOKED: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM adjustments WHERE state = 'BOOKED') THEN
        RAISE EXCEPTION 'adjustments have moved money: their entries stay, so do they';
    END IF;
END $$
"""


def upgrade() -> None:
    """Create the table with its guards."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove them; refused once an adjustment was booked."""
    op.execute(_NOTHING_WAS_BOOKED)
    op.execute("DROP TABLE adjustments")
    op.execute("DROP FUNCTION guard_adjustment()")
    op.execute("DROP FUNCTION prepare_adjustment()")
