CREATE TABLE authentication_passkeys (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    credential_id BYTEA,
    credential BYTEA,
    sign_count BIGINT NOT NULL,
    enrolled_at TIMESTAMP WITH TIME ZONE,
    challenge_id UUID,
    challenge BYTEA,
    challenge_purpose TEXT,
    challenge_subject TEXT,
    challenge_expires_at TIMESTAMP WITH TIME ZONE,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT authentication_passkeys_pkey PRIMARY KEY (id),
    CONSTRAINT authentication_passkeys_sign_count_check CHECK (sign_count >= 0),
    CONSTRAINT authentication_passkeys_credential_id_check
        CHECK (octet_length(credential_id) <= 1023),
    CONSTRAINT authentication_passkeys_id_fkey FOREIGN KEY (id) REFERENCES customers (id),
    CONSTRAINT authentication_passkeys_platform_id_fkey
        FOREIGN KEY (platform_id) REFERENCES platforms (id)
);
COMMENT ON TABLE authentication_passkeys IS 'Passkeys of customers, one each, and the challenge that is open.';
COMMENT ON COLUMN authentication_passkeys.id IS 'The customer.';
COMMENT ON COLUMN authentication_passkeys.platform_id IS 'The platform.';
COMMENT ON COLUMN authentication_passkeys.credential_id IS 'Identifier of the passkey; null: none.';
COMMENT ON COLUMN authentication_passkeys.credential IS 'The passkey as WebAuthn describes it, with its public key; null: none.';
COMMENT ON COLUMN authentication_passkeys.sign_count IS 'Counter of the last use; 0 where the passkey has none.';
COMMENT ON COLUMN authentication_passkeys.enrolled_at IS 'When it was enrolled; null: not yet.';
COMMENT ON COLUMN authentication_passkeys.challenge_id IS 'The last challenge; null: none.';
COMMENT ON COLUMN authentication_passkeys.challenge IS 'Its random bytes; null: none is open.';
COMMENT ON COLUMN authentication_passkeys.challenge_purpose IS 'ENROL, or what its answer authorizes.';
COMMENT ON COLUMN authentication_passkeys.challenge_subject IS 'What it is about; empty: nothing.';
COMMENT ON COLUMN authentication_passkeys.challenge_expires_at IS 'Until when it is accepted; null: none is open.';
COMMENT ON COLUMN authentication_passkeys.updated_at IS 'Time of the last change.';
