-- Who customers are, first version. Frozen: a change to a table is a new migration.

ALTER TABLE platforms ADD COLUMN currency_settings JSONB DEFAULT '{}' NOT NULL;
ALTER TABLE platforms ADD COLUMN uma_domain TEXT;
ALTER TABLE platforms ADD COLUMN embedded_wallet_config JSONB;
ALTER TABLE platforms ADD COLUMN card_tokenization_2fa_config JSONB;
ALTER TABLE platforms ADD COLUMN fee_configs JSONB DEFAULT '[]' NOT NULL;
ALTER TABLE customers ADD COLUMN id_type TEXT;
ALTER TABLE customers ADD COLUMN identifier BYTEA;
ALTER TABLE customers ADD COLUMN country_of_issuance TEXT;
ALTER TABLE customers ADD COLUMN due_diligence JSONB;
ALTER TABLE customers ADD COLUMN end_user_terms_consent JSONB;
CREATE TABLE beneficial_owners (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    customer_id UUID NOT NULL,
    roles TEXT[] NOT NULL,
    ownership_percentage NUMERIC(7, 4) NOT NULL,
    personal_info JSONB NOT NULL,
    identifier BYTEA NOT NULL,
    kyc_status TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT beneficial_owners_pkey PRIMARY KEY (id),
    CONSTRAINT beneficial_owners_share_check CHECK (ownership_percentage BETWEEN 0 AND 100),
    CONSTRAINT beneficial_owners_kyc_status_check CHECK (kyc_status IN ('UNVERIFIED', 'PENDING', 'APPROVED', 'REJECTED', 'HOLD')),
    CONSTRAINT beneficial_owners_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id),
    CONSTRAINT beneficial_owners_customer_id_fkey FOREIGN KEY(customer_id) REFERENCES customers (id)
);
CREATE INDEX beneficial_owners_customer_id_idx ON beneficial_owners (customer_id, id);
CREATE TABLE verifications (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    customer_id UUID NOT NULL,
    status TEXT NOT NULL,
    errors JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT verifications_pkey PRIMARY KEY (id),
    CONSTRAINT verifications_status_check CHECK (status IN ('READY_FOR_VERIFICATION', 'RESOLVE_ERRORS', 'IN_PROGRESS', 'PENDING_MANUAL_REVIEW', 'APPROVED', 'REJECTED')),
    CONSTRAINT verifications_platform_id_fkey FOREIGN KEY(platform_id) REFERENCES platforms (id),
    CONSTRAINT verifications_customer_id_fkey FOREIGN KEY(customer_id) REFERENCES customers (id)
);
CREATE INDEX verifications_customer_id_idx ON verifications (customer_id, id);
CREATE INDEX verifications_platform_id_idx ON verifications (platform_id, id);
CREATE UNIQUE INDEX verifications_undecided_key ON verifications (customer_id) WHERE (status NOT IN ('APPROVED', 'REJECTED'));
COMMENT ON TABLE beneficial_owners IS 'The people who own or control a business.';
COMMENT ON COLUMN beneficial_owners.id IS 'The owner.';
COMMENT ON COLUMN beneficial_owners.platform_id IS 'Its platform.';
COMMENT ON COLUMN beneficial_owners.customer_id IS 'The business.';
COMMENT ON COLUMN beneficial_owners.roles IS 'UBO, DIRECTOR, COMPANY_OFFICER, CONTROL_PERSON, TRUSTEE, GENERAL_PARTNER.';
COMMENT ON COLUMN beneficial_owners.ownership_percentage IS 'Share of the business, 0 to 100, exact.';
COMMENT ON COLUMN beneficial_owners.personal_info IS 'Who it is, as it was sent, but for the tax number.';
COMMENT ON COLUMN beneficial_owners.identifier IS 'Its tax number, encrypted with the server key.';
COMMENT ON COLUMN beneficial_owners.kyc_status IS 'UNVERIFIED, PENDING, APPROVED, REJECTED or HOLD.';
COMMENT ON COLUMN beneficial_owners.created_at IS 'When it was added.';
COMMENT ON COLUMN beneficial_owners.updated_at IS 'When it last changed.';
COMMENT ON TABLE verifications IS 'Whether a customer is who it says it is; one that is not decided is taken up again.';
COMMENT ON COLUMN verifications.id IS 'The verification.';
COMMENT ON COLUMN verifications.platform_id IS 'Its platform.';
COMMENT ON COLUMN verifications.customer_id IS 'Who is verified.';
COMMENT ON COLUMN verifications.status IS 'How it stands; APPROVED and REJECTED are the end.';
COMMENT ON COLUMN verifications.errors IS 'What has to be corrected first, as the API returns it.';
COMMENT ON COLUMN verifications.created_at IS 'When it was first asked for.';
COMMENT ON COLUMN verifications.updated_at IS 'When it last changed.';
COMMENT ON COLUMN platforms.currency_settings IS 'What the platform says of its currencies, by code; absent: nothing.';
COMMENT ON COLUMN platforms.uma_domain IS 'Where its generated UMA addresses live; null: with us.';
COMMENT ON COLUMN platforms.embedded_wallet_config IS 'How its wallets appear, as it was sent.';
COMMENT ON COLUMN platforms.card_tokenization_2fa_config IS 'How codes for adding a card to a phone appear, as it was sent.';
COMMENT ON COLUMN platforms.fee_configs IS 'Its fees, one per type and source currency.';
COMMENT ON COLUMN customers.id_type IS 'Kind of an individual''s tax number: SSN or ITIN.';
COMMENT ON COLUMN customers.identifier IS 'Tax number of an individual, encrypted with the server key; never shown.';
COMMENT ON COLUMN customers.country_of_issuance IS 'Who gave the tax number, alpha-2.';
COMMENT ON COLUMN customers.due_diligence IS 'What an individual says of his money, as it was sent.';
COMMENT ON COLUMN customers.end_user_terms_consent IS 'Consent to the terms, as it was sent.';
