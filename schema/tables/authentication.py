"""Authentication of customers: verified contacts, factors, challenges, resets of factors."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    Table,
    Uuid,
)

from cardledger.schema.tables.columns import count, key, metadata, text_column, timestamp
from cardledger.schema.tables.customers import customers
from cardledger.schema.tables.platforms import platforms

customer_authentication = Table(
    "customer_authentication",
    metadata,
    Column("id", ForeignKey(customers.c.id), primary_key=True, comment="The customer."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    text_column("verified_email", "Email address that was verified; null: none.", nullable=True),
    text_column("verified_phone", "Phone number that was verified; null: none.", nullable=True),
    Column(
        "totp_secret",
        LargeBinary,
        comment="Secret of the authenticator, encrypted with the server key; null: none.",
    ),
    timestamp(
        "totp_enrolled_at",
        "When the customer proved that the authenticator works; null: not yet.",
        nullable=True,
    ),
    Column(
        "totp_step",
        BigInteger,
        comment="Period of 30 seconds of the last accepted code, which is not accepted again.",
    ),
    Column(
        "recovery_hashes",
        LargeBinary,
        comment="Keyed hashes of the unused recovery codes, 37 bytes each.",
    ),
    count("failed_attempts", "Wrong codes and failed logins since the last success or lock."),
    timestamp("locked_until", "Until when no code is accepted; null: not locked.", nullable=True),
    timestamp(
        "session_expires_at", "End of the session of the last login; null: none.", nullable=True
    ),
    timestamp("updated_at", "Time of the last change."),
    CheckConstraint("failed_attempts >= 0", name="failed_attempts"),
    CheckConstraint(
        "octet_length(recovery_hashes) % 37 = 0 AND octet_length(recovery_hashes) <= 370",
        name="recovery_hashes",
    ),
    comment="What proves that a customer is who it is: a row for each that has begun to.",
)

authentication_challenges = Table(
    "authentication_challenges",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The challenge."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column("customer_id", ForeignKey(customers.c.id), nullable=False, comment="The customer."),
    text_column("purpose", "What the answer verifies or authorizes."),
    text_column(
        "subject", "What it is about: an address, an external account, a quote; empty: nothing."
    ),
    text_column("factor", "SMS_OTP or EMAIL_OTP: how the code was sent."),
    Column("code_hash", LargeBinary, nullable=False, comment="Keyed hash of the code."),
    count("attempts", "Wrong answers."),
    timestamp("created_at", "When the code was sent."),
    timestamp("expires_at", "Until when the code is accepted."),
    timestamp("ended_at", "When it was answered, replaced or given up; null: open.", nullable=True),
    CheckConstraint("attempts >= 0", name="attempts"),
    CheckConstraint("factor IN ('SMS_OTP', 'EMAIL_OTP')", name="factor"),
    CheckConstraint(
        "purpose IN ('VERIFY_EMAIL', 'VERIFY_PHONE', 'LOGIN', 'TRUST', 'UNTRUST',"
        " 'CURRENCY_CONVERSION', 'PAYOUT', 'TRANSFER')",
        name="purpose",
    ),
    comment="One-time codes that were sent to customers; deleted a day after the customer's next.",
)
Index(
    "authentication_challenges_customer_id_idx",
    authentication_challenges.c.customer_id,
    authentication_challenges.c.created_at,
)

authentication_passkeys = Table(
    "authentication_passkeys",
    metadata,
    Column("id", ForeignKey(customers.c.id), primary_key=True, comment="The customer."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column("credential_id", LargeBinary, comment="Identifier of the passkey; null: none."),
    Column(
        "credential",
        LargeBinary,
        comment="The passkey as WebAuthn describes it, with its public key; null: none.",
    ),
    Column(
        "sign_count",
        BigInteger,
        nullable=False,
        comment="Counter of the last use; 0 where the passkey has none.",
    ),
    timestamp("enrolled_at", "When it was enrolled; null: not yet.", nullable=True),
    key("challenge_id", "The last challenge; null: none.", nullable=True),
    Column("challenge", LargeBinary, comment="Its random bytes; null: none is open."),
    text_column("challenge_purpose", "ENROL, or what its answer authorizes.", nullable=True),
    text_column("challenge_subject", "What it is about; empty: nothing.", nullable=True),
    timestamp(
        "challenge_expires_at", "Until when it is accepted; null: none is open.", nullable=True
    ),
    timestamp("updated_at", "Time of the last change."),
    CheckConstraint("sign_count >= 0", name="sign_count"),
    CheckConstraint("octet_length(credential_id) <= 1023", name="credential_id"),
    comment="Passkeys of customers, one each, and the challenge that is open.",
)

authentication_resets = Table(
    "authentication_resets",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The reset."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column("customer_id", ForeignKey(customers.c.id), nullable=False, comment="The customer."),
    text_column("factor", "The lost factor: SMS_OTP or TOTP."),
    text_column("status", "INITIATED, PENDING_REVIEW, LIVENESS_PASSED, COMPLETED or REJECTED."),
    timestamp("created_at", "When it was started."),
    timestamp("expires_at", "Until when it can be completed."),
    timestamp("completed_at", "When it was completed; null: not yet.", nullable=True),
    CheckConstraint("factor IN ('SMS_OTP', 'TOTP')", name="factor"),
    CheckConstraint(
        "status IN ('INITIATED', 'PENDING_REVIEW', 'LIVENESS_PASSED', 'COMPLETED', 'REJECTED')",
        name="status",
    ),
    comment="Resets of lost factors; deleted 30 days after their start, by the customer's next.",
)
Index(
    "authentication_resets_customer_id_idx",
    authentication_resets.c.customer_id,
    authentication_resets.c.created_at,
)
