"""Webhook endpoints: any number for a platform, and keys that take over from one another."""

from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"

# What the application may change beside adding rows: never whose endpoint it is, nor its mode.
UPDATABLE = {
    "webhook_endpoints": "url, description, event_types, state, disabled_reason, secret,"
    " former_secret, former_secret_until, failing_since, updated_at, deleted_at",
    # A webhook that had nowhere to go may be sent somewhere later.
    "webhook_deliveries": "endpoint_id, attempts_before",
}
NEW = ("webhook_endpoints", "webhook_signing_keys")

# One endpoint is all that the schema before knows: the default one. Webhooks that went to others
# are kept as what they are, facts; what still waits for them is not sent any more.
_BACK_TO_ONE = """
ALTER TABLE platforms ADD COLUMN webhook_endpoint TEXT;
COMMENT ON COLUMN platforms.webhook_endpoint IS 'Where its webhooks go; null: kept, not sent.';
UPDATE platforms p SET webhook_endpoint = e.url FROM webhook_endpoints e
    WHERE e.platform_id = p.id AND e.is_default AND e.deleted_at IS NULL;
DROP INDEX webhook_deliveries_due_idx;
DROP INDEX webhook_deliveries_next_idx;
ALTER TABLE webhook_deliveries ADD COLUMN url TEXT;
COMMENT ON COLUMN webhook_deliveries.url IS 'Where it goes; null: no endpoint was set.';
UPDATE webhook_deliveries w SET url = e.url FROM webhook_endpoints e WHERE e.id = w.endpoint_id;
UPDATE webhook_deliveries w SET state = 'FAILED', next_attempt_at = NULL
    WHERE state = 'PENDING' AND NOT EXISTS (
        SELECT FROM webhook_endpoints e
        WHERE e.id = w.endpoint_id AND e.is_default AND e.deleted_at IS NULL);
UPDATE webhook_deliveries SET next_attempt_at = now() WHERE next_attempt_at > now();
ALTER TABLE webhook_deliveries
    DROP COLUMN webhook_id, DROP COLUMN endpoint_id, DROP COLUMN attempts_before;
CREATE INDEX webhook_deliveries_due_idx
    ON webhook_deliveries (platform_id, next_attempt_at, id) WHERE next_attempt_at IS NOT NULL;
"""


def upgrade() -> None:
    """Create the tables, take over the endpoints there are, and give the application its rights."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    grants = [f"GRANT SELECT, INSERT ON {table}" for table in NEW]
    grants += [f"GRANT UPDATE ({columns}) ON {table}" for table, columns in UPDATABLE.items()]
    op.execute(_for_the_role(grants))


def downgrade() -> None:
    """Go back to one endpoint a platform; keys that took over are lost."""
    op.execute(_BACK_TO_ONE)
    op.execute("DROP TABLE webhook_signing_keys, webhook_endpoints")
    op.execute(_for_the_role(["GRANT UPDATE (webhook_endpoint) ON platforms"]))


def _for_the_role(grants: list[str]) -> str:
    statements = " ".join(f"EXECUTE format('{grant} TO %I', role);" for grant in grants)
    return f"DO $$ DECLARE role text := current_database() || '_app'; BEGIN {statements} END $$"
