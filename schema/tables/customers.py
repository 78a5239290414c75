"""Customers: beneficial owners, verifications, external accounts."""

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKey,
    Index,
    LargeBinary,
    Numeric,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from cardledger.schema.tables.columns import metadata, text_column, timestamp
from cardledger.schema.tables.platforms import platforms

customers = Table(
    "customers",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The customer; a cardholder when it has a card."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    text_column("platform_customer_id", "Identifier chosen by the platform."),
    text_column("customer_type", "INDIVIDUAL or BUSINESS."),
    text_column("kyc_status", "UNVERIFIED, PENDING, APPROVED, REJECTED or HOLD."),
    text_column("uma_address", "Its UMA address."),
    text_column("region", "Country, ISO 3166-1 alpha-2.", nullable=True),
    Column("currencies", ARRAY(Text), nullable=False, comment="Currencies of its accounts."),
    text_column("email", "Email address.", nullable=True),
    text_column("phone_number", "Phone number, E.164.", nullable=True),
    text_column("full_name", "Name of an individual.", nullable=True),
    Column("birth_date", Date, comment="Date of birth of an individual."),
    text_column("nationality", "Nationality of an individual, ISO 3166-1 alpha-2.", nullable=True),
    Column("address", JSONB, comment="Postal address, as submitted."),
    text_column("id_type", "Type of the tax number of an individual: SSN or ITIN.", nullable=True),
    Column(
        "identifier",
        LargeBinary,
        comment="Tax number of an individual, encrypted with the server key; never returned.",
    ),
    text_column(
        "country_of_issuance",
        "Country that issued the tax number, ISO 3166-1 alpha-2.",
        nullable=True,
    ),
    Column(
        "due_diligence",
        JSONB(none_as_null=True),
        comment="Source of funds and occupation of an individual, as submitted.",
    ),
    Column(
        "end_user_terms_consent",
        JSONB(none_as_null=True),
        comment="Consent to the terms, as submitted.",
    ),
    Column("business_info", JSONB, comment="Details of a business, as submitted."),
    Column(
        "is_deleted",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="Whether the platform has deleted it; its ledger data is retained.",
    ),
    timestamp("created_at", "Time of creation."),
    timestamp("updated_at", "Time of the last change."),
)
Index(
    "customers_platform_customer_id_key",
    customers.c.platform_id,
    customers.c.platform_customer_id,
    unique=True,
    postgresql_where=~customers.c.is_deleted,
)
# For lists by these filters, deleted customers included.
Index("customers_platform_id_idx", customers.c.platform_id, customers.c.id)
Index(
    "customers_of_id_idx", customers.c.platform_id, customers.c.platform_customer_id, customers.c.id
)
Index("customers_created_at_idx", customers.c.platform_id, customers.c.created_at, customers.c.id)
Index("customers_updated_at_idx", customers.c.platform_id, customers.c.updated_at, customers.c.id)
Index("customers_region_idx", customers.c.platform_id, customers.c.region, customers.c.id)
Index("customers_type_idx", customers.c.platform_id, customers.c.customer_type, customers.c.id)
Index(
    "customers_uma_address_key",
    customers.c.uma_address,
    unique=True,
    postgresql_where=~customers.c.is_deleted,
)

beneficial_owners = Table(
    "beneficial_owners",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The owner."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column("customer_id", ForeignKey(customers.c.id), nullable=False, comment="The business."),
    Column(
        "roles",
        ARRAY(Text),
        nullable=False,
        comment="UBO, DIRECTOR, COMPANY_OFFICER, CONTROL_PERSON, TRUSTEE, GENERAL_PARTNER.",
    ),
    Column(
        "ownership_percentage",
        Numeric(7, 4),
        nullable=False,
        comment="Share of the business, 0 to 100, exact.",
    ),
    Column(
        "personal_info",
        JSONB,
        nullable=False,
        comment="Personal data, as submitted, without the tax number.",
    ),
    Column(
        "identifier",
        LargeBinary,
        nullable=False,
        comment="Tax number, encrypted with the server key.",
    ),
    text_column("kyc_status", "UNVERIFIED, PENDING, APPROVED, REJECTED or HOLD."),
    timestamp("created_at", "Time of creation."),
    timestamp("updated_at", "Time of the last change."),
    CheckConstraint("ownership_percentage BETWEEN 0 AND 100", name="share"),
    CheckConstraint(
        "kyc_status IN ('UNVERIFIED', 'PENDING', 'APPROVED', 'REJECTED', 'HOLD')",
        name="kyc_status",
    ),
    comment="Beneficial owners: the people who own or control a business.",
)
Index("beneficial_owners_customer_id_idx", beneficial_owners.c.customer_id, beneficial_owners.c.id)

verifications = Table(
    "verifications",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The verification."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column(
        "customer_id",
        ForeignKey(customers.c.id),
        nullable=False,
        comment="The customer that is verified.",
    ),
    text_column("status", "Status; APPROVED and REJECTED are final."),
    Column(
        "errors",
        JSONB,
        nullable=False,
        comment="What has to be corrected first, as the API returns it.",
    ),
    timestamp("created_at", "Time of the first request."),
    timestamp("updated_at", "Time of the last change."),
    CheckConstraint(
        "status IN ('READY_FOR_VERIFICATION', 'RESOLVE_ERRORS', 'IN_PROGRESS',"
        " 'PENDING_MANUAL_REVIEW', 'APPROVED', 'REJECTED')",
        name="status",
    ),
    comment="KYC and KYB verifications; at most one undecided verification for each customer.",
)
Index("verifications_platform_id_idx", verifications.c.platform_id, verifications.c.id)
Index(
    "verifications_status_idx",
    verifications.c.platform_id,
    verifications.c.status,
    verifications.c.id,
)
Index("verifications_customer_id_idx", verifications.c.customer_id, verifications.c.id)
Index(
    "verifications_undecided_key",
    verifications.c.customer_id,
    unique=True,
    postgresql_where=verifications.c.status.not_in(["APPROVED", "REJECTED"]),
)

external_accounts = Table(
    "external_accounts",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The external account."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    Column(
        "customer_id",
        ForeignKey(customers.c.id),
        comment="The customer that owns it; null: the platform.",
    ),
    text_column("platform_account_id", "Identifier chosen by the platform.", nullable=True),
    text_column("currency", "Its currency."),
    text_column("account_type", "Its variant, such as USD_ACCOUNT."),
    text_column(
        "status",
        "PENDING, ACTIVE, UNDER_REVIEW or INACTIVE; only ACTIVE accounts receive payments.",
    ),
    Column(
        "default_uma_deposit_account",
        Boolean,
        nullable=False,
        comment="Whether UMA payments to the customer go there; at most one account of a customer.",
    ),
    Column(
        "fingerprint",
        LargeBinary,
        nullable=False,
        comment="SHA-256 of owner, currency, type and identifiers: equal for duplicates of"
        " one account.",
    ),
    Column("account_info", JSONB, nullable=False, comment="Details, as submitted."),
    text_column(
        "beneficiary_verification_status",
        "Result of matching the name of the beneficiary; null for wallets, which have no"
        " beneficiary.",
        nullable=True,
    ),
    text_column(
        "beneficiary_verified_name",
        "Name of the account holder as returned by the payment rail; null: not returned.",
        nullable=True,
    ),
    timestamp(
        "trusted_at",
        "When its customer trusted it by strong authentication; null: it is not trusted.",
        nullable=True,
    ),
    timestamp("created_at", "Time of registration."),
    timestamp("updated_at", "Time of the last change."),
    timestamp("deleted_at", "When the platform deleted it; null: not deleted.", nullable=True),
    CheckConstraint("status IN ('PENDING', 'ACTIVE', 'UNDER_REVIEW', 'INACTIVE')", name="status"),
    CheckConstraint(
        "customer_id IS NOT NULL OR NOT default_uma_deposit_account", name="default_has_customer"
    ),
    comment="Bank accounts and wallets outside the service.",
)
Index("external_accounts_platform_id_idx", external_accounts.c.platform_id, external_accounts.c.id)
# The accounts that count against the cap of a customer.
Index(
    "external_accounts_live_idx",
    external_accounts.c.customer_id,
    postgresql_where=external_accounts.c.deleted_at.is_(None),
)
# For lists by these filters.
Index(
    "external_accounts_of_platform_idx",
    external_accounts.c.platform_id,
    external_accounts.c.id,
    postgresql_where=external_accounts.c.customer_id.is_(None)
    & external_accounts.c.deleted_at.is_(None),
)
Index(
    "external_accounts_currency_idx",
    external_accounts.c.platform_id,
    external_accounts.c.currency,
    external_accounts.c.id,
)
Index("external_accounts_customer_id_idx", external_accounts.c.customer_id, external_accounts.c.id)
Index(
    "external_accounts_fingerprint_key",
    external_accounts.c.platform_id,
    external_accounts.c.fingerprint,
    unique=True,
    postgresql_where=external_accounts.c.deleted_at.is_(None),
)
Index(
    "external_accounts_default_key",
    external_accounts.c.customer_id,
    unique=True,
    postgresql_where=external_accounts.c.default_uma_deposit_account
    & external_accounts.c.deleted_at.is_(None),
)
