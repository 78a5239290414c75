CREATE TABLE customer_authentication (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    verified_email TEXT,
    verified_phone TEXT,
    totp_secret BYTEA,
    totp_enrolled_at TIMESTAMP WITH TIME ZONE,
    totp_step BIGINT,
    recovery_hashes BYTEA,
    failed_attempts INTEGER DEFAULT 0 NOT NULL,
    locked_until TIMESTAMP WITH TIME ZONE,
    session_expires_at TIMESTAMP WITH TIME ZONE,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT customer_authentication_pkey PRIMARY KEY (id),
    CONSTRAINT customer_authentication_failed_attempts_check CHECK (failed_attempts >= 0),
    CONSTRAINT customer_authentication_recovery_hashes_check CHECK (
        octet_length(recovery_hashes) % 37 = 0 AND octet_length(recovery_hashes) <= 370
    ),
    CONSTRAINT customer_authentication_id_fkey FOREIGN KEY (id) REFERENCES customers (id),
    CONSTRAINT customer_authentication_platform_id_fkey
        FOREIGN KEY (platform_id) REFERENCES platforms (id)
);
COMMENT ON TABLE customer_authentication IS 'What proves that a customer is who it is: a row for each that has begun to.';
COMMENT ON COLUMN customer_authentication.id IS 'The customer.';
COMMENT ON COLUMN customer_authentication.platform_id IS 'The platform.';
COMMENT ON COLUMN customer_authentication.verified_email IS 'Email address that was verified; null: none.';
COMMENT ON COLUMN customer_authentication.verified_phone IS 'Phone number that was verified; null: none.';
COMMENT ON COLUMN customer_authentication.totp_secret IS 'Secret of the authenticator, encrypted with the server key; null: none.';
COMMENT ON COLUMN customer_authentication.totp_enrolled_at IS 'When the customer proved that the authenticator works; null: not yet.';
COMMENT ON COLUMN customer_authentication.totp_step IS 'Period of 30 seconds of the last accepted code, which is not accepted again.';
COMMENT ON COLUMN customer_authentication.recovery_hashes IS 'Keyed hashes of the unused recovery codes, 37 bytes each.';
COMMENT ON COLUMN customer_authentication.failed_attempts IS 'Wrong codes and failed logins since the last success or lock.';
COMMENT ON COLUMN customer_authentication.locked_until IS 'Until when no code is accepted; null: not locked.';
COMMENT ON COLUMN customer_authentication.session_expires_at IS 'End of the session of the last login; null: none.';
COMMENT ON COLUMN customer_authentication.updated_at IS 'Time of the last change.';

CREATE TABLE authentication_challenges (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    customer_id UUID NOT NULL,
    purpose TEXT NOT NULL,
    subject TEXT NOT NULL,
    factor TEXT NOT NULL,
    code_hash BYTEA NOT NULL,
    attempts INTEGER DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT authentication_challenges_pkey PRIMARY KEY (id),
    CONSTRAINT authentication_challenges_attempts_check CHECK (attempts >= 0),
    CONSTRAINT authentication_challenges_factor_check CHECK (factor IN ('SMS_OTP', 'EMAIL_OTP')),
    CONSTRAINT authentication_challenges_purpose_check CHECK (
        purpose IN ('VERIFY_EMAIL', 'VERIFY_PHONE', 'LOGIN', 'TRUST', 'UNTRUST',
            'CURRENCY_CONVERSION', 'PAYOUT', 'TRANSFER')
    ),
    CONSTRAINT authentication_challenges_platform_id_fkey
        FOREIGN KEY (platform_id) REFERENCES platforms (id),
    CONSTRAINT authentication_challenges_customer_id_fkey
        FOREIGN KEY (customer_id) REFERENCES customers (id)
);
CREATE INDEX authentication_challenges_customer_id_idx
    ON authentication_challenges (customer_id, created_at);
COMMENT ON TABLE authentication_challenges IS 'One-time codes that were sent to customers; deleted a day after the customer''s next.';
COMMENT ON COLUMN authentication_challenges.id IS 'The challenge.';
COMMENT ON COLUMN authentication_challenges.platform_id IS 'The platform.';
COMMENT ON COLUMN authentication_challenges.customer_id IS 'The customer.';
COMMENT ON COLUMN authentication_challenges.purpose IS 'What the answer verifies or authorizes.';
COMMENT ON COLUMN authentication_challenges.subject IS 'What it is about: an address, an external account, a quote; empty: nothing.';
COMMENT ON COLUMN authentication_challenges.factor IS 'SMS_OTP or EMAIL_OTP: how the code was sent.';
COMMENT ON COLUMN authentication_challenges.code_hash IS 'Keyed hash of the code.';
COMMENT ON COLUMN authentication_challenges.attempts IS 'Wrong answers.';
COMMENT ON COLUMN authentication_challenges.created_at IS 'When the code was sent.';
COMMENT ON COLUMN authentication_challenges.expires_at IS 'Until when the code is accepted.';
COMMENT ON COLUMN authentication_challenges.ended_at IS 'When it was answered, replaced or given up; null: open.';

CREATE TABLE authentication_resets (
    id UUID NOT NULL,
    platform_id UUID NOT NULL,
    customer_id UUID NOT NULL,
    factor TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    completed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT authentication_resets_pkey PRIMARY KEY (id),
    CONSTRAINT authentication_resets_factor_check CHECK (factor IN ('SMS_OTP', 'TOTP')),
    CONSTRAINT authentication_resets_status_check CHECK (
        status IN ('INITIATED', 'PENDING_REVIEW', 'LIVENESS_PASSED', 'COMPLETED', 'REJECTED')
    ),
    CONSTRAINT authentication_resets_platform_id_fkey
        FOREIGN KEY (platform_id) REFERENCES platforms (id),
    CONSTRAINT authentication_resets_customer_id_fkey
        FOREIGN KEY (customer_id) REFERENCES customers (id)
);
CREATE INDEX authentication_resets_customer_id_idx
    ON authentication_resets (customer_id, created_at);
COMMENT ON TABLE authentication_resets IS 'Resets of lost factors; deleted 30 days after their start, by the customer''s next.';
COMMENT ON COLUMN authentication_resets.id IS 'The reset.';
COMMENT ON COLUMN authentication_resets.platform_id IS 'The platform.';
COMMENT ON COLUMN authentication_resets.customer_id IS 'The customer.';
COMMENT ON COLUMN authentication_resets.factor IS 'The lost factor: SMS_OTP or TOTP.';
COMMENT ON COLUMN authentication_resets.status IS 'INITIATED, PENDING_REVIEW, LIVENESS_PASSED, COMPLETED or REJECTED.';
COMMENT ON COLUMN authentication_resets.created_at IS 'When it was started.';
COMMENT ON COLUMN authentication_resets.expires_at IS 'Until when it can be completed.';
COMMENT ON COLUMN authentication_resets.completed_at IS 'When it was completed; null: not yet.';
