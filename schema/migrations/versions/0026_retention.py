"""Deliveries of webhooks are kept for some time: the right to delete old ones."""

from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Let the senders of webhooks delete; attempts can still not be changed."""
    _guard("UPDATE OR TRUNCATE")
    _for_roles("GRANT DELETE ON webhook_deliveries, webhook_attempts TO")
    _comment("Attempts to deliver a webhook; never changed, deleted with their delivery.")


def downgrade() -> None:
    """Keep everything again."""
    _comment("Attempts to deliver a webhook, append-only.")
    _for_roles("REVOKE DELETE ON webhook_deliveries, webhook_attempts FROM")
    _guard("UPDATE OR DELETE OR TRUNCATE")


def _guard(changes: str) -> None:
    op.execute(
        f"CREATE OR REPLACE TRIGGER append_only BEFORE {changes} ON webhook_attempts"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    )
    op.execute("ALTER TABLE webhook_attempts ENABLE ALWAYS TRIGGER append_only")


def _for_roles(what: str) -> None:
    op.execute(
        f"DO $$ BEGIN EXECUTE format('{what} %I, %I', current_database() || '_webhooks',"
        " current_database() || '_app'); END $$"
    )


def _comment(text: str) -> None:
    op.execute(f"COMMENT ON TABLE webhook_attempts IS '{text}'")
