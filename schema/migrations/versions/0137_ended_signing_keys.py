"""The senders of webhooks delete signing keys that have ended."""

from typing import Final

from alembic import op

revision = "0137"
down_revision = "0136"

_BEFORE: Final = "Signing keys of X-Grid-Signature after the first one of a platform, append-only."
_SINCE: Final = (
    "Signing keys of X-Grid-Signature after the first one of a platform; deleted an hour after they"
    " have ended."
)

_GRANT: Final = """
DO $$ DECLARE
    db text := current_database();
BEGIN
    EXECUTE format('GRANT DELETE ON webhook_signing_keys TO %I, %I',
        db || '_webhooks', db || '_app');
END $$
"""

_REVOKE: Final = """
DO $$ DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['webhooks', 'app'] LOOP
        role := current_database() || '_' || role;
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('REVOKE DELETE ON webhook_signing_keys FROM %I', role);
        END IF;
    END LOOP;
END $$
"""


def upgrade() -> None:
    """Let them; a sender of the release before deletes none."""
    op.execute(_GRANT)
    op.execute(f"COMMENT ON TABLE webhook_signing_keys IS '{_SINCE}'")


def downgrade() -> None:
    """Let them no more."""
    op.execute(f"COMMENT ON TABLE webhook_signing_keys IS '{_BEFORE}'")
    op.execute(_REVOKE)
