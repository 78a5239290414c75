"""Stalled queues, retried rejections, and the releases that can use the schema."""

from pathlib import Path

from alembic import op

revision = "0012"
down_revision = "0011"

# A retry is a fact: no right to change or to delete it.
_RIGHTS = (
    "GRANT SELECT, INSERT, DELETE ON stalled_queues",
    "GRANT UPDATE (message_id, error, attempts, last_attempt_at) ON stalled_queues",
    "GRANT SELECT, INSERT ON rejection_retries",
    "GRANT SELECT ON schema_compatibility",
)


def upgrade() -> None:
    """Create the tables and the index, with the application's rights."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    op.execute(
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON rejection_retries"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    )
    op.execute("ALTER TABLE rejection_retries ENABLE ALWAYS TRIGGER append_only")
    given = " ".join(f"EXECUTE format('{right} TO %I', role);" for right in _RIGHTS)
    op.execute(f"DO $$ DECLARE role text := current_database() || '_app'; BEGIN {given} END $$")


def downgrade() -> None:
    """Remove the tables and the index; the rights go with them."""
    op.execute("DROP INDEX rejections_platform_id_idx")
    op.execute("DROP TABLE stalled_queues, rejection_retries, schema_compatibility")
