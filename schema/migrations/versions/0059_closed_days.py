"""PostgreSQL refuses an entry that is posted on a closed day, whichever role inserts it."""

from cardledger.schema.migrations.steps import execute_alone

revision = "0059"
down_revision = "0058"


def upgrade() -> None:
    """Create the trigger with a short lock of the table.

    ALWAYS: also when `session_replication_role` is `replica`, which skips ordinary triggers.
    """
    execute_alone("""
DO $$ BEGIN
    CREATE OR REPLACE TRIGGER closed_day AFTER INSERT ON entries
        REFERENCING NEW TABLE AS written
        FOR EACH STATEMENT EXECUTE FUNCTION refuse_closed_day();
    ALTER TABLE entries ENABLE ALWAYS TRIGGER closed_day;
END $$
""")


def downgrade() -> None:
    """Remove the trigger."""
    execute_alone("DROP TRIGGER IF EXISTS closed_day ON entries")
