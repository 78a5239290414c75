-- Endpoints of webhooks, first version. Frozen: a change to a table is a new migration.

CREATE TABLE webhook_endpoints (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    is_default BOOLEAN NOT NULL,
    url TEXT NOT NULL,
    description TEXT,
    event_types TEXT[] NOT NULL,
    mode TEXT NOT NULL,
    state TEXT NOT NULL,
    disabled_reason TEXT,
    secret BYTEA,
    former_secret BYTEA,
    former_secret_until TIMESTAMP WITH TIME ZONE,
    failing_since TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deleted_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT webhook_endpoints_pkey PRIMARY KEY (id),
    CONSTRAINT webhook_endpoints_mode_check CHECK (mode IN ('FIFO', 'PARALLEL')),
    CONSTRAINT webhook_endpoints_state_check CHECK (state IN ('ENABLED', 'DISABLED')),
    CONSTRAINT webhook_endpoints_disabled_reason_check CHECK (disabled_reason IS NULL OR disabled_reason IN ('PLATFORM', 'GONE', 'FAILING')),
    CONSTRAINT webhook_endpoints_disabled_has_reason_check CHECK ((state = 'DISABLED') = (disabled_reason IS NOT NULL)),
    CONSTRAINT webhook_endpoints_former_secret_ends_check CHECK ((former_secret IS NULL) = (former_secret_until IS NULL)),
    CONSTRAINT webhook_endpoints_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id)
);
CREATE UNIQUE INDEX webhook_endpoints_default_key ON webhook_endpoints (platform_id) WHERE is_default;
CREATE INDEX webhook_endpoints_platform_id_idx ON webhook_endpoints (platform_id, id);
COMMENT ON TABLE webhook_endpoints IS 'Where a platform is told; deleted ones are kept for their deliveries.';
COMMENT ON COLUMN webhook_endpoints.id IS 'The endpoint.';
COMMENT ON COLUMN webhook_endpoints.platform_id IS 'Its platform.';
COMMENT ON COLUMN webhook_endpoints.is_default IS 'Whether it is the webhookEndpoint of the platform''s settings.';
COMMENT ON COLUMN webhook_endpoints.url IS 'Where its webhooks go.';
COMMENT ON COLUMN webhook_endpoints.description IS 'What the platform calls it.';
COMMENT ON COLUMN webhook_endpoints.event_types IS 'Types that it wants, such as CARD_TRANSACTION.*; empty: all.';
COMMENT ON COLUMN webhook_endpoints.mode IS 'FIFO: each resource''s webhooks strictly in order; PARALLEL: as they come.';
COMMENT ON COLUMN webhook_endpoints.state IS 'ENABLED or DISABLED; what a disabled one should be told waits.';
COMMENT ON COLUMN webhook_endpoints.disabled_reason IS 'PLATFORM, GONE or FAILING; null: enabled.';
COMMENT ON COLUMN webhook_endpoints.secret IS 'Its HMAC secret, encrypted with the server key; null: the platform''s.';
COMMENT ON COLUMN webhook_endpoints.former_secret IS 'The secret before; it still signs for a while.';
COMMENT ON COLUMN webhook_endpoints.former_secret_until IS 'Until when the secret before signs too.';
COMMENT ON COLUMN webhook_endpoints.failing_since IS 'First failure after which nothing was delivered.';
COMMENT ON COLUMN webhook_endpoints.created_at IS 'When it was set up.';
COMMENT ON COLUMN webhook_endpoints.updated_at IS 'When it was last changed.';
COMMENT ON COLUMN webhook_endpoints.deleted_at IS 'When the platform took it away; null: not.';
CREATE TABLE webhook_signing_keys (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    private_key BYTEA NOT NULL,
    public_key TEXT NOT NULL,
    signs_from TIMESTAMP WITH TIME ZONE NOT NULL,
    former_until TIMESTAMP WITH TIME ZONE NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT webhook_signing_keys_pkey PRIMARY KEY (id),
    CONSTRAINT webhook_signing_keys_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id)
);
CREATE INDEX webhook_signing_keys_platform_id_idx ON webhook_signing_keys (platform_id, id);
COMMENT ON TABLE webhook_signing_keys IS 'Keys of X-Grid-Signature after a platform''s first; no right to change them.';
COMMENT ON COLUMN webhook_signing_keys.id IS 'The key.';
COMMENT ON COLUMN webhook_signing_keys.platform_id IS 'Whose key it is.';
COMMENT ON COLUMN webhook_signing_keys.private_key IS 'P-256 private key, encrypted with the server key.';
COMMENT ON COLUMN webhook_signing_keys.public_key IS 'The PEM public key that belongs to it.';
COMMENT ON COLUMN webhook_signing_keys.signs_from IS 'When it takes over from the key before.';
COMMENT ON COLUMN webhook_signing_keys.former_until IS 'Until when the key before is published beside it.';
COMMENT ON COLUMN webhook_signing_keys.created_at IS 'When it was made, and published.';

-- What was the platform's one endpoint is its default one.
INSERT INTO webhook_endpoints (id, platform_id, is_default, url, event_types, mode, state, created_at, updated_at)
    SELECT gen_random_uuid(), id, true, webhook_endpoint, '{}', 'PARALLEL', 'ENABLED', updated_at, updated_at
    FROM platforms WHERE webhook_endpoint IS NOT NULL;
ALTER TABLE platforms DROP COLUMN webhook_endpoint;
COMMENT ON COLUMN platforms.webhook_secret IS 'HMAC secret of the Standard Webhooks headers, encrypted with the server key: that of its default endpoint until it has one of its own.';

-- A delivery is one webhook to one endpoint now.
DROP INDEX webhook_deliveries_due_idx;
ALTER TABLE webhook_deliveries ADD COLUMN webhook_id UUID;
ALTER TABLE webhook_deliveries ADD COLUMN endpoint_id UUID;
ALTER TABLE webhook_deliveries ADD COLUMN attempts_before INTEGER DEFAULT 0 NOT NULL;
UPDATE webhook_deliveries w SET webhook_id = w.id, endpoint_id = e.id
    FROM platforms p LEFT JOIN webhook_endpoints e ON e.platform_id = p.id WHERE p.id = w.platform_id;
UPDATE webhook_deliveries SET endpoint_id = NULL WHERE url IS NULL;
UPDATE webhook_deliveries SET state = 'NO_ENDPOINT', next_attempt_at = NULL WHERE state = 'PENDING' AND endpoint_id IS NULL;
ALTER TABLE webhook_deliveries ALTER COLUMN webhook_id SET NOT NULL;
ALTER TABLE webhook_deliveries DROP COLUMN url;
CREATE INDEX webhook_deliveries_due_idx ON webhook_deliveries (endpoint_id, next_attempt_at, webhook_id) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX webhook_deliveries_next_idx ON webhook_deliveries (endpoint_id, subject_id, next_attempt_at, webhook_id) WHERE next_attempt_at IS NOT NULL;
COMMENT ON COLUMN webhook_deliveries.id IS 'The delivery: one webhook on its way to one endpoint.';
COMMENT ON COLUMN webhook_deliveries.next_attempt_at IS 'When the next attempt is due; from 9999 on: its place behind others; null: none.';
COMMENT ON COLUMN webhook_deliveries.webhook_id IS 'The webhook, as receivers see it: constant over endpoints and attempts.';
COMMENT ON COLUMN webhook_deliveries.endpoint_id IS 'Where it goes; null: there was no endpoint.';
COMMENT ON COLUMN webhook_deliveries.attempts_before IS 'Attempts made before it was last asked for again.';
