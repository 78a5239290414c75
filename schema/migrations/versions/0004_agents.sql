-- Agents and their device codes, first version. Frozen: a change to a table is a new migration.

CREATE TABLE agents (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    customer_id UUID NOT NULL,
    name TEXT NOT NULL,
    is_paused BOOLEAN NOT NULL,
    policy JSONB NOT NULL,
    access_token_hash BYTEA,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deleted_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT agents_pkey PRIMARY KEY (id),
    CONSTRAINT agents_deleted_has_no_access_check CHECK (num_nulls(access_token_hash, deleted_at) >= 1),
    CONSTRAINT agents_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id),
    CONSTRAINT agents_customer_id_fkey FOREIGN KEY(customer_id) REFERENCES customers (id),
    CONSTRAINT agents_access_token_hash_key UNIQUE (access_token_hash)
);
CREATE INDEX agents_customer_id_idx ON agents (customer_id);
CREATE INDEX agents_platform_id_idx ON agents (platform_id, id);
COMMENT ON TABLE agents IS 'Programs that act for a customer, within a policy.';
COMMENT ON COLUMN agents.id IS 'The agent: a program that acts for a customer.';
COMMENT ON COLUMN agents.platform_id IS 'Its platform.';
COMMENT ON COLUMN agents.customer_id IS 'Its customer.';
COMMENT ON COLUMN agents.name IS 'What people call it.';
COMMENT ON COLUMN agents.is_paused IS 'Whether it may only read for now.';
COMMENT ON COLUMN agents.policy IS 'What it may do, as the interface shows it.';
COMMENT ON COLUMN agents.access_token_hash IS 'HMAC-SHA-256 of its access token under the server key, which is not kept; null: not connected.';
COMMENT ON COLUMN agents.created_at IS 'When it was created.';
COMMENT ON COLUMN agents.updated_at IS 'When it last changed.';
COMMENT ON COLUMN agents.deleted_at IS 'When it was deleted; null: not.';

CREATE TABLE agent_device_codes (
    code_hash BYTEA NOT NULL,
    agent_id UUID NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    redeemed_at TIMESTAMP WITH TIME ZONE,
    replaced_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT agent_device_codes_pkey PRIMARY KEY (code_hash),
    CONSTRAINT agent_device_codes_one_end_check CHECK (num_nulls(redeemed_at, replaced_at) >= 1),
    CONSTRAINT agent_device_codes_agent_id_fkey FOREIGN KEY(agent_id) REFERENCES agents (id)
);
CREATE UNIQUE INDEX agent_device_codes_open_key ON agent_device_codes (agent_id) WHERE redeemed_at IS NULL AND replaced_at IS NULL;
CREATE UNIQUE INDEX agent_device_codes_redeemed_key ON agent_device_codes (agent_id) WHERE redeemed_at IS NOT NULL;
COMMENT ON TABLE agent_device_codes IS 'Codes with which a program becomes an agent: one open at a time, one redeemed ever.';
COMMENT ON COLUMN agent_device_codes.code_hash IS 'HMAC-SHA-256 of the code under the server key; the code is not kept.';
COMMENT ON COLUMN agent_device_codes.agent_id IS 'Whom it connects.';
COMMENT ON COLUMN agent_device_codes.created_at IS 'When it was made.';
COMMENT ON COLUMN agent_device_codes.expires_at IS 'When it can no longer be redeemed.';
COMMENT ON COLUMN agent_device_codes.redeemed_at IS 'When it was redeemed; null: not.';
COMMENT ON COLUMN agent_device_codes.replaced_at IS 'When a newer code took its place; null: not.';

COMMENT ON COLUMN idempotency_keys.key IS 'The header Idempotency-Key, as it was sent; for an agent, its id and a line break before.';
