"""What settlement files and bank statements book."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0095"
down_revision = "0094"

_RIGHTS: Final = """
DO $$ DECLARE
    app text := current_database() || '_app';
    worker text := current_database() || '_worker';
BEGIN
    EXECUTE format('GRANT SELECT ON settlement_bookings TO %I, %I, %I', app, worker,
        current_database() || '_reader');
    EXECUTE format('GRANT UPDATE (booked_at) ON settlement_bookings TO %I, %I', app, worker);
END $$
"""

_NOTHING_WAS_BOOKED: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM settlement_bookings) THEN
        RAISE EXCEPTION 'files have moved money: their entries stay, so do they';
    END IF;
END $$
"""


def upgrade() -> None:
    """Create the table with its guards."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(_RIGHTS)


def downgrade() -> None:
    """Remove it; refused once a file or a statement books anything."""
    op.execute(_NOTHING_WAS_BOOKED)
    op.execute("DROP TABLE settlement_bookings")
