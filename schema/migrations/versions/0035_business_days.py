"""The chart of accounts, currencies, calendars, the first open day, and settlement details."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0035"
down_revision = "0034"

_APPEND_ONLY: Final = ("calendars", "settlement_details")
_NEW: Final = "books, calendars, chart_of_accounts, currencies, settlement_details"
_RIGHTS: Final = {
    # Who added a version of a calendar, and when, is written by the database.
    "app": (
        f"SELECT ON {_NEW}",
        "INSERT ON settlement_details",
        "INSERT (name, valid_from, time_zone, cut_off, days, holidays) ON calendars",
    ),
    "worker": (f"SELECT ON {_NEW}", "INSERT ON settlement_details"),
    "reader": (f"SELECT ON {_NEW}",),
}


def upgrade() -> None:
    """Create the tables; the books are open from the month of the oldest entry on."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for table in _APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")
    for suffix, rights in _RIGHTS.items():
        given = " ".join(f"EXECUTE format('GRANT {right} TO %I', role);" for right in rights)
        op.execute(
            f"DO $$ DECLARE role text := current_database() || '_{suffix}'; BEGIN {given} END $$"
        )


def downgrade() -> None:
    """Remove them."""
    op.execute(f"DROP TABLE {_NEW}")
