"""Items of SUSPENSE: movements of the network that could not be applied, each until it is."""

from pathlib import Path
from typing import Final

from alembic import op

revision = "0050"
down_revision = "0049"

_RIGHTS: Final = {
    "app": ("SELECT, INSERT, UPDATE (resolved_at, resolved_by) ON suspense_items",),
    # And it completes the system accounts of platforms that an earlier release opens.
    "worker": (
        "SELECT, INSERT, UPDATE (resolved_at, resolved_by) ON suspense_items",
        "INSERT ON system_accounts",
    ),
    "reader": ("SELECT ON suspense_items",),
}


# The release before would apply a corrected event beside what is booked of the rejected one.
_NOTHING_WAS_BOOKED: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM suspense_items) THEN
        RAISE EXCEPTION 'items of suspense have moved money: their entries stay, so do they';
    END IF;
END $$
"""


def upgrade() -> None:
    """Create the table, of which a row can only be resolved."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for suffix, rights in _RIGHTS.items():
        given = " ".join(f"EXECUTE format('GRANT {right} TO %I', role);" for right in rights)
        op.execute(
            f"DO $$ DECLARE role text := current_database() || '_{suffix}'; BEGIN {given} END $$"
        )


def downgrade() -> None:
    """Remove it, and the right; refused once an item was booked."""
    op.execute(_NOTHING_WAS_BOOKED)
    op.execute("DROP TABLE suspense_items")
    op.execute(
        "DO $$ DECLARE role text := current_database() || '_worker'; BEGIN"
        " IF to_regrole(quote_ident(role)) IS NOT NULL THEN"
        " EXECUTE format('REVOKE INSERT ON system_accounts FROM %I', role); END IF; END $$"
    )
