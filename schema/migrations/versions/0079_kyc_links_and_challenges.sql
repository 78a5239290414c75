CREATE TABLE kyc_links (
    token_hash BYTEA NOT NULL,
    platform_id UUID NOT NULL,
    customer_id UUID NOT NULL,
    redirect_uri TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    used_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT kyc_links_pkey PRIMARY KEY (token_hash),
    CONSTRAINT kyc_links_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id),
    CONSTRAINT kyc_links_customer_id_fkey FOREIGN KEY(customer_id) REFERENCES customers (id)
);
CREATE INDEX kyc_links_customer_id_idx ON kyc_links (customer_id);
CREATE INDEX kyc_links_expires_at_idx ON kyc_links (expires_at);
COMMENT ON TABLE kyc_links IS 'Links to a hosted page on which a customer is verified, once.';
COMMENT ON COLUMN kyc_links.token_hash IS 'Hash of the token in the URL.';
COMMENT ON COLUMN kyc_links.platform_id IS 'The platform.';
COMMENT ON COLUMN kyc_links.customer_id IS 'The customer.';
COMMENT ON COLUMN kyc_links.redirect_uri IS 'Where the page leads to after its end.';
COMMENT ON COLUMN kyc_links.created_at IS 'Time of creation.';
COMMENT ON COLUMN kyc_links.expires_at IS 'Time from which it does not work any more.';
COMMENT ON COLUMN kyc_links.used_at IS 'When its page was submitted; null: not yet.';

CREATE TABLE external_account_challenges (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    external_account_id UUID NOT NULL,
    amounts BIGINT[] NOT NULL,
    attempts INTEGER DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT external_account_challenges_pkey PRIMARY KEY (id),
    CONSTRAINT external_account_challenges_attempts_check CHECK (attempts >= 0),
    CONSTRAINT external_account_challenges_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id),
    CONSTRAINT external_account_challenges_external_account_id_fkey FOREIGN KEY(external_account_id) REFERENCES external_accounts (id)
);
CREATE INDEX external_account_challenges_account_idx ON external_account_challenges (external_account_id, id);
COMMENT ON TABLE external_account_challenges IS 'Challenges of external accounts: who can name two amounts receives its payments.';
COMMENT ON COLUMN external_account_challenges.id IS 'The challenge.';
COMMENT ON COLUMN external_account_challenges.platform_id IS 'The platform.';
COMMENT ON COLUMN external_account_challenges.external_account_id IS 'The account.';
COMMENT ON COLUMN external_account_challenges.amounts IS 'Amounts that were paid to it, minor units, ascending.';
COMMENT ON COLUMN external_account_challenges.attempts IS 'Wrong answers.';
COMMENT ON COLUMN external_account_challenges.created_at IS 'Time of the request.';
COMMENT ON COLUMN external_account_challenges.expires_at IS 'Time from which no answer counts.';

