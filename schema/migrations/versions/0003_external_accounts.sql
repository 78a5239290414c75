-- External accounts, first version. Frozen: a change to a table is a new migration.

CREATE TABLE external_accounts (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    customer_id UUID,
    platform_account_id TEXT,
    currency TEXT NOT NULL,
    account_type TEXT NOT NULL,
    status TEXT NOT NULL,
    default_uma_deposit_account BOOLEAN NOT NULL,
    fingerprint BYTEA NOT NULL,
    account_info JSONB NOT NULL,
    beneficiary_verification_status TEXT,
    beneficiary_verified_name TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deleted_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT external_accounts_pkey PRIMARY KEY (id),
    CONSTRAINT external_accounts_status_check CHECK (status IN ('PENDING', 'ACTIVE', 'UNDER_REVIEW', 'INACTIVE')),
    CONSTRAINT external_accounts_default_has_customer_check CHECK (customer_id IS NOT NULL OR NOT default_uma_deposit_account),
    CONSTRAINT external_accounts_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id),
    CONSTRAINT external_accounts_customer_id_fkey FOREIGN KEY(customer_id) REFERENCES customers (id)
);
CREATE INDEX external_accounts_customer_id_idx ON external_accounts (customer_id, id);
CREATE UNIQUE INDEX external_accounts_default_key ON external_accounts (customer_id) WHERE default_uma_deposit_account AND deleted_at IS NULL;
CREATE UNIQUE INDEX external_accounts_fingerprint_key ON external_accounts (platform_id, fingerprint) WHERE deleted_at IS NULL;
CREATE INDEX external_accounts_platform_id_idx ON external_accounts (platform_id, id);
COMMENT ON TABLE external_accounts IS 'Bank accounts and wallets outside the service.';
COMMENT ON COLUMN external_accounts.id IS 'The external account.';
COMMENT ON COLUMN external_accounts.platform_id IS 'Its platform.';
COMMENT ON COLUMN external_accounts.customer_id IS 'Whose account it is; null: the platform''s own.';
COMMENT ON COLUMN external_accounts.platform_account_id IS 'The platform''s own identifier.';
COMMENT ON COLUMN external_accounts.currency IS 'Its currency.';
COMMENT ON COLUMN external_accounts.account_type IS 'Its variant, such as USD_ACCOUNT.';
COMMENT ON COLUMN external_accounts.status IS 'PENDING, ACTIVE, UNDER_REVIEW or INACTIVE; only ACTIVE receives.';
COMMENT ON COLUMN external_accounts.default_uma_deposit_account IS 'Whether UMA payments to its customer go there; at most one of a customer''s.';
COMMENT ON COLUMN external_accounts.fingerprint IS 'SHA-256 of owner, currency, type and identifiers: equal for the same account.';
COMMENT ON COLUMN external_accounts.account_info IS 'Its details, as they were sent.';
COMMENT ON COLUMN external_accounts.beneficiary_verification_status IS 'How its beneficiary''s name compares to its holder''s; null: wallets, which have none.';
COMMENT ON COLUMN external_accounts.beneficiary_verified_name IS 'Its holder''s name by the rail, if told.';
COMMENT ON COLUMN external_accounts.created_at IS 'When it was registered.';
COMMENT ON COLUMN external_accounts.updated_at IS 'When it last changed.';
COMMENT ON COLUMN external_accounts.deleted_at IS 'When the platform deleted it; null: not.';
