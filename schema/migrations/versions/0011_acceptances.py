"""Acceptances: a record of every write to the inbox and of every duplicate."""

from pathlib import Path

from alembic import op

revision = "0011"
down_revision = "0010"

# The function writes as its owner, so the application cannot write there in another way. In a
# function with the rights of its owner, names must not be looked up where its caller says.
_RIGHTS = """
DO $$ DECLARE role text := current_database() || '_app'; BEGIN
    EXECUTE format('ALTER FUNCTION record_acceptance() SET search_path = %I, pg_temp',
                   current_schema());
    EXECUTE format('GRANT SELECT ON acceptances TO %I', role);
    EXECUTE format('GRANT SELECT, INSERT ON duplicates TO %I', role);
END $$
"""

# The first row is the moment from which on every decided message must have been accepted: it holds
# what waits now, which was accepted before, and decisions of a clock that is ahead of ours. The
# lock of the trigger on the inbox keeps both as they are until the commit.
_FIRST = """
INSERT INTO acceptances (ids, recorded_at)
SELECT coalesce(array_agg(id), '{}'), now() FROM (
    SELECT id FROM inbox
    UNION ALL SELECT message_id FROM outcomes WHERE recorded_at >= now()
) message
"""


def upgrade() -> None:
    """Create both tables and the trigger on the inbox, and record what waits."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for table in ("acceptances", "duplicates"):
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")
    op.execute(_RIGHTS)
    op.execute(_FIRST)


def downgrade() -> None:
    """Remove both tables and the trigger."""
    op.execute("DROP TRIGGER acceptance ON inbox")
    op.execute("DROP FUNCTION record_acceptance()")
    op.execute("DROP TABLE duplicates, acceptances")
