"""A client id is issued once, so that a token and its hash do not move to another platform."""

from typing import Final

from cardledger.schema.migrations.steps import change_in_pages, execute_alone

revision = "0150"
down_revision = "0149"

_TABLE: Final = "issued_client_ids"
_RECORD: Final = "record_client_id"

_CREATE: Final = f"""
DO $$ BEGIN
    IF to_regclass('{_TABLE}') IS NULL THEN  -- A run was interrupted later.
        CREATE TABLE {_TABLE} (
            client_id text NOT NULL,
            CONSTRAINT {_TABLE}_pkey PRIMARY KEY (client_id)
        );
    END IF;
END $$;
COMMENT ON TABLE {_TABLE} IS
    'Client ids of all API tokens, deleted ones included; written by a trigger.';
COMMENT ON COLUMN {_TABLE}.client_id IS 'The client id, which no other token gets.';
DO $$ DECLARE db text := current_database(); BEGIN
    EXECUTE format('GRANT SELECT ON {_TABLE} TO %I, %I', db || '_app', db || '_reader');
END $$;
"""

# The hash of a secret is bound to its client id, and the role of the API may delete a token and
# insert a row of any platform. A conflict is found whatever the snapshot of the session is.
_FUNCTION: Final = f"""
CREATE OR REPLACE FUNCTION {_RECORD}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO {_TABLE} (client_id) VALUES (NEW.client_id) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'client id % was issued before', NEW.client_id
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION {_RECORD}() FROM PUBLIC;
-- Names in a function with the rights of its owner must not be looked up where its caller says.
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION {_RECORD}() SET search_path = %I, pg_temp', current_schema());
END $$;
"""

_TRIGGER: Final = f"""
CREATE OR REPLACE TRIGGER {_RECORD} AFTER INSERT ON api_tokens
    FOR EACH ROW EXECUTE FUNCTION {_RECORD}()
"""

_FILL: Final = f"""
INSERT INTO {_TABLE} (client_id)
SELECT t.client_id FROM api_tokens t
WHERE NOT EXISTS (SELECT FROM {_TABLE} i WHERE i.client_id = t.client_id)
LIMIT 1000
ON CONFLICT DO NOTHING
"""


def upgrade() -> None:
    """Record what is issued from now on, then what was issued before, while others insert."""
    for statement in (_CREATE, _FUNCTION, _TRIGGER):
        execute_alone(statement)
    change_in_pages(_FILL)


def downgrade() -> None:
    """Forget what was issued."""
    execute_alone(f"DROP TRIGGER IF EXISTS {_RECORD} ON api_tokens")
    execute_alone(f"DROP FUNCTION IF EXISTS {_RECORD}()")
    execute_alone(f"DROP TABLE IF EXISTS {_TABLE}")
