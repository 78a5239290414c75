"""Expired quotes that are deleted no longer count against the quota of their platform."""

from typing import Final

from alembic import op

revision = "0139"
down_revision = "0138"

# A session that deletes subtracts in slots of its own (17 to 32), which no insert waits for. A page
# of quotes may be of many platforms: sessions of the same slot take them in one order.
_FUNCTION: Final = """
    CREATE FUNCTION count_deleted_rows() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO row_counts AS c (platform_id, resource, slot, rows)
        SELECT platform_id, TG_TABLE_NAME, 17 + pg_backend_pid() % 16, -count(*)
        FROM removed GROUP BY platform_id ORDER BY platform_id
        ON CONFLICT (platform_id, resource, slot) DO UPDATE SET rows = c.rows + excluded.rows;
        RETURN NULL;
    END $$
"""

# Names in a function with the rights of its owner must not be looked up where its caller says.
_RIGHTS: Final = """
DO $$ BEGIN
    REVOKE EXECUTE ON FUNCTION count_deleted_rows() FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION count_deleted_rows() SET search_path = %I, pg_temp',
        current_schema());
END $$
"""

_SLOTS: Final = (
    "0 to 15: by the session that inserted; 16: rows older than schema 0029, and quotes deleted"
    " before 0139; 17 to 32: deleted rows, negative, by the session that deleted."
)
_SLOTS_BEFORE: Final = "0 to 15: by the session that inserted; 16: rows older than schema 0029."


def upgrade() -> None:
    """Subtract what is deleted from now on; what was deleted before follows with the next one."""
    op.execute(_FUNCTION)
    op.execute(_RIGHTS)
    op.execute(
        "CREATE TRIGGER deleted_row_count AFTER DELETE ON quotes REFERENCING OLD TABLE AS removed"
        " FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_rows()"
    )
    op.execute(f"COMMENT ON COLUMN row_counts.slot IS '{_SLOTS}'")


def downgrade() -> None:
    """Count deleted quotes again, except those already subtracted."""
    op.execute(f"COMMENT ON COLUMN row_counts.slot IS '{_SLOTS_BEFORE}'")
    op.execute("DROP TRIGGER deleted_row_count ON quotes")
    op.execute("DROP FUNCTION count_deleted_rows()")
