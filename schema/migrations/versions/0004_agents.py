"""Agents: programs that act for a customer, and the codes that connect them."""

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"

# Never whose agent it is, and never whom a code connects or how long: another one is another row.
_RIGHTS = (
    "GRANT SELECT, INSERT ON agents, agent_device_codes",
    "GRANT UPDATE (name, is_paused, policy, access_token_hash, updated_at, deleted_at) ON agents",
    "GRANT UPDATE (redeemed_at, replaced_at) ON agent_device_codes",
)


def upgrade() -> None:
    """Create the tables and give the application its rights."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    given = " ".join(f"EXECUTE format('{right} TO %I', role);" for right in _RIGHTS)
    op.execute(f"DO $$ DECLARE role text := current_database() || '_app'; BEGIN {given} END $$")


def downgrade() -> None:
    """Remove the tables, and the rights with them."""
    op.execute("DROP TABLE agent_device_codes")
    op.execute("DROP TABLE agents")
    op.execute(
        "COMMENT ON COLUMN idempotency_keys.key IS 'The header Idempotency-Key, as it was sent.'"
    )
