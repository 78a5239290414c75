"""Pages of card numbers and device codes that expired long ago are deleted."""

from typing import Final

from cardledger.schema.migrations.steps import (
    create_index_concurrently,
    drop_index_concurrently,
    execute_alone,
)

revision = "0142"
down_revision = "0141"

_INDEXES: Final = {
    "card_reveals_expires_at_idx": "card_reveals (expires_at)",
    "agent_device_codes_unused_idx": "agent_device_codes (expires_at) WHERE redeemed_at IS NULL",
}
_NAME: Final = "delete_expired_credentials"

# No process has the right to delete what says who has seen a card number: the function deletes
# nothing that is younger. A row that is being changed is left to the next call.
_FUNCTION: Final = f"""
    CREATE OR REPLACE FUNCTION {_NAME}(page integer) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER AS $$
        WITH reveals AS (
            DELETE FROM card_reveals WHERE token_hash IN (
                SELECT token_hash FROM card_reveals WHERE expires_at < now() - interval '400 days'
                ORDER BY expires_at LIMIT page FOR UPDATE SKIP LOCKED
            ) RETURNING 1
        ), codes AS (
            DELETE FROM agent_device_codes WHERE code_hash IN (
                SELECT code_hash FROM agent_device_codes
                WHERE redeemed_at IS NULL AND expires_at < now() - interval '30 days'
                ORDER BY expires_at LIMIT page FOR UPDATE SKIP LOCKED
            ) RETURNING 1
        )
        SELECT (SELECT count(*) FROM reveals) + (SELECT count(*) FROM codes)
    $$
"""

# Names in a function with the rights of its owner must not be looked up where its caller says.
_RIGHTS: Final = f"""
DO $$ DECLARE
    db text := current_database();
BEGIN
    REVOKE EXECUTE ON FUNCTION {_NAME}(integer) FROM PUBLIC;
    EXECUTE format('ALTER FUNCTION {_NAME}(integer) SET search_path = %I, pg_temp',
        current_schema());
    EXECUTE format('GRANT EXECUTE ON FUNCTION {_NAME}(integer) TO %I, %I',
        db || '_webhooks', db || '_app');
END $$
"""

_BODY: Final = "COMMENT ON COLUMN rejections.body IS '{}'"


def upgrade() -> None:
    """Build the indexes, and let the senders of webhooks call the function that deletes."""
    for name, on in _INDEXES.items():
        create_index_concurrently(name, on)
    execute_alone(_FUNCTION)
    execute_alone(_RIGHTS)
    execute_alone(
        _BODY.format("The message as received; of a large malformed one its fields and beginning.")
    )


def downgrade() -> None:
    """Keep them for good."""
    execute_alone(_BODY.format("The message as received."))
    execute_alone(f"DROP FUNCTION IF EXISTS {_NAME}(integer)")
    for name in _INDEXES:
        drop_index_concurrently(name)
