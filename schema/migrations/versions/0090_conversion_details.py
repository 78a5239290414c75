"""How the network converted the amounts of purchases in another currency than the card's."""

from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations.views import create_view

revision = "0090"
down_revision = "0089"

_RIGHTS: Final = {
    "app": "SELECT, INSERT ON conversion_details",
    "worker": "SELECT, INSERT ON conversion_details",
    "reader": "SELECT ON conversion_details",
}

_DROP_VIEW: Final = """
DO $$ BEGIN
    EXECUTE format('DROP VIEW %I.conversion_details', current_schema() || '_api');
END $$
"""


def upgrade() -> None:
    """Create the table, append-only, and its view for one platform."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON conversion_details"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    )
    op.execute("ALTER TABLE conversion_details ENABLE ALWAYS TRIGGER append_only")
    for suffix, rights in _RIGHTS.items():
        op.execute(
            f"DO $$ DECLARE role text := current_database() || '_{suffix}'; BEGIN"
            f" EXECUTE format('GRANT {rights} TO %I', role); END $$"
        )
    create_view("conversion_details", "SELECT")


def downgrade() -> None:
    """Remove them."""
    op.execute(_DROP_VIEW)
    op.execute("DROP TABLE conversion_details")
