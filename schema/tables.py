"""The tables of the record, every column with a sentence.

Two kinds. *Hot* tables are written by every batch of the engine: they have no foreign keys (one
look-up a row would cost more than the row) and as few indexes as their readers allow; `verify`
and the tests hold what a foreign key would. *Cold* tables describe who and what, with foreign
keys.

Every hot row carries `customer_id`, the cardholder and home of all that moves; primary keys put
it last, so that a database distributed by it could hold them. Amounts are `bigint` minor units.
Guarantees that SQLAlchemy has no words for (roles, triggers) are in the migrations.
"""

from typing import Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSON, JSONB, TIMESTAMP

metadata: Final = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    }
)


def _id(name: str, comment: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, Uuid, nullable=nullable, comment=comment)


def _amount(name: str, comment: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"), comment=comment)


def _count(name: str, comment: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text("0"), comment=comment)


def _text(name: str, comment: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable, comment=comment)


def _time(name: str, comment: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, TIMESTAMP(timezone=True), nullable=nullable, comment=comment)


# --- cold: who and what ----------------------------------------------------------------------

platforms = Table(
    "platforms",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The tenant: a partner that issues cards."),
    _text("name", "What people call it."),
    Column(
        "supported_currencies",
        ARRAY(Text),
        nullable=False,
        comment="Currencies in which its customers get an internal account.",
    ),
    Column(
        "currency_settings",
        JSONB,
        nullable=False,
        server_default=text("'{}'"),
        comment="What the platform says of its currencies, by code; absent: nothing.",
    ),
    _text("uma_domain", "Where its generated UMA addresses live; null: with us.", nullable=True),
    Column(
        "embedded_wallet_config",
        JSONB(none_as_null=True),
        comment="How its wallets appear, as it was sent.",
    ),
    Column(
        "card_tokenization_2fa_config",
        JSONB(none_as_null=True),
        comment="How codes for adding a card to a phone appear, as it was sent.",
    ),
    Column(
        "fee_configs",
        JSONB,
        nullable=False,
        server_default=text("'[]'"),
        comment="Its fees, one per type and source currency.",
    ),
    Column(
        "signing_key",
        LargeBinary,
        nullable=False,
        comment="P-256 private key of X-Grid-Signature, encrypted with the server key.",
    ),
    _text("public_key", "The PEM public key that belongs to `signing_key`."),
    Column(
        "webhook_secret",
        LargeBinary,
        nullable=False,
        comment="HMAC secret of the Standard Webhooks headers, encrypted with the server key: that"
        " of its default endpoint until it has one of its own.",
    ),
    _time("created_at", "When the platform was set up."),
    _time("updated_at", "When its configuration last changed."),
)

api_tokens = Table(
    "api_tokens",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The token."),
    Column(
        "platform_id",
        ForeignKey(platforms.c.id),
        nullable=False,
        index=True,
        comment="Whose token it is.",
    ),
    _text("name", "What people call it."),
    Column("client_id", Text, nullable=False, unique=True, comment="User name of Basic auth."),
    Column(
        "secret_hash",
        LargeBinary,
        nullable=False,
        comment="HMAC-SHA-256 of the client secret under the server key; the secret is not kept.",
    ),
    Column("permissions", ARRAY(Text), nullable=False, comment="VIEW, TRANSACT, MANAGE."),
    _time("created_at", "When it was made."),
)

customers = Table(
    "customers",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The customer; as cardholder, a home of money."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="Its platform."),
    _text("platform_customer_id", "The platform's own identifier."),
    _text("customer_type", "INDIVIDUAL or BUSINESS."),
    _text("kyc_status", "UNVERIFIED, PENDING, APPROVED, REJECTED or HOLD."),
    _text("uma_address", "Its UMA address."),
    _text("region", "Country, ISO 3166-1 alpha-2.", nullable=True),
    Column("currencies", ARRAY(Text), nullable=False, comment="Currencies of its accounts."),
    _text("email", "E-mail address.", nullable=True),
    _text("phone_number", "Phone number, E.164.", nullable=True),
    _text("full_name", "Name of an individual.", nullable=True),
    Column("birth_date", Date, comment="Date of birth of an individual."),
    _text("nationality", "Nationality of an individual, alpha-2.", nullable=True),
    Column("address", JSONB, comment="Postal address, as it was sent."),
    _text("id_type", "Kind of an individual's tax number: SSN or ITIN.", nullable=True),
    Column(
        "identifier",
        LargeBinary,
        comment="Tax number of an individual, encrypted with the server key; never shown.",
    ),
    _text("country_of_issuance", "Who gave the tax number, alpha-2.", nullable=True),
    Column(
        "due_diligence",
        JSONB(none_as_null=True),
        comment="What an individual says of his money, as it was sent.",
    ),
    Column(
        "end_user_terms_consent",
        JSONB(none_as_null=True),
        comment="Consent to the terms, as it was sent.",
    ),
    Column("business_info", JSONB, comment="What a business says of itself, as it was sent."),
    Column(
        "is_deleted",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="Deleted for the platform; its books stay.",
    ),
    _time("created_at", "When it was created."),
    _time("updated_at", "When it last changed."),
)
Index(
    "customers_platform_customer_id_key",
    customers.c.platform_id,
    customers.c.platform_customer_id,
    unique=True,
    postgresql_where=~customers.c.is_deleted,
)
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
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="Its platform."),
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
        comment="Who it is, as it was sent, but for the tax number.",
    ),
    Column(
        "identifier",
        LargeBinary,
        nullable=False,
        comment="Its tax number, encrypted with the server key.",
    ),
    _text("kyc_status", "UNVERIFIED, PENDING, APPROVED, REJECTED or HOLD."),
    _time("created_at", "When it was added."),
    _time("updated_at", "When it last changed."),
    CheckConstraint("ownership_percentage BETWEEN 0 AND 100", name="share"),
    CheckConstraint(
        "kyc_status IN ('UNVERIFIED', 'PENDING', 'APPROVED', 'REJECTED', 'HOLD')",
        name="kyc_status",
    ),
    comment="The people who own or control a business.",
)
Index("beneficial_owners_customer_id_idx", beneficial_owners.c.customer_id, beneficial_owners.c.id)

verifications = Table(
    "verifications",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The verification."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="Its platform."),
    Column("customer_id", ForeignKey(customers.c.id), nullable=False, comment="Who is verified."),
    _text("status", "How it stands; APPROVED and REJECTED are the end."),
    Column("errors", JSONB, nullable=False, comment="What has to be mended first, as it is shown."),
    _time("created_at", "When it was first asked for."),
    _time("updated_at", "When it last changed."),
    CheckConstraint(
        "status IN ('READY_FOR_VERIFICATION', 'RESOLVE_ERRORS', 'IN_PROGRESS',"
        " 'PENDING_MANUAL_REVIEW', 'APPROVED', 'REJECTED')",
        name="status",
    ),
    comment="Whether a customer is who it says it is; one that is not decided is taken up again.",
)
Index("verifications_platform_id_idx", verifications.c.platform_id, verifications.c.id)
Index("verifications_customer_id_idx", verifications.c.customer_id, verifications.c.id)
Index(
    "verifications_undecided_key",
    verifications.c.customer_id,
    unique=True,
    postgresql_where=verifications.c.status.not_in(["APPROVED", "REJECTED"]),
)

cards = Table(
    "cards",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The card."),
    Column("customer_id", ForeignKey(customers.c.id), nullable=False, comment="Its cardholder."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="Its platform."),
    _text("platform_card_id", "The platform's own identifier."),
    _text("state", "PENDING_KYC, PROCESSING, ACTIVE, FROZEN or CLOSED."),
    _text("state_reason", "Why it is closed; null otherwise.", nullable=True),
    _text("form", "VIRTUAL."),
    _text("brand", "VISA or MASTERCARD, once provisioned.", nullable=True),
    _text("last4", "Last four digits, once provisioned.", nullable=True),
    Column("exp_month", SmallInteger, comment="Month of expiry, once provisioned."),
    Column("exp_year", SmallInteger, comment="Year of expiry, once provisioned."),
    _text("currency", "Currency of its funding sources."),
    Column(
        "funding_sources",
        ARRAY(Uuid),
        nullable=False,
        comment="Internal accounts by priority; decisions read the first. A closed card keeps them"
        " for clearings that come late, and shows none.",
    ),
    Column(
        "max_spend_per_transaction",
        BigInteger,
        CheckConstraint("max_spend_per_transaction >= 1", name="max_spend_positive"),
        comment="Largest amount of one authorization; null: no limit.",
    ),
    _text("processor_ref", "The processor's reference."),
    _text("issuer_ref", "The issuer's reference."),
    _time("activate_at", "When the issuer finishes; null: never, or done.", nullable=True),
    _time("created_at", "When it was asked for."),
    _time("updated_at", "When it last changed."),
)
Index("cards_customer_id_idx", cards.c.customer_id)
Index("cards_platform_id_idx", cards.c.platform_id, cards.c.id)
Index("cards_funding_sources_idx", cards.c.funding_sources, postgresql_using="gin")
Index(
    "cards_platform_card_id_key",
    cards.c.platform_id,
    cards.c.platform_card_id,
    unique=True,
    postgresql_where=cards.c.state != "CLOSED",
)
Index(
    "cards_activate_at_idx", cards.c.activate_at, postgresql_where=cards.c.activate_at.isnot(None)
)

card_reveals = Table(
    "card_reveals",
    metadata,
    Column(
        "token_hash",
        LargeBinary,
        primary_key=True,
        comment="HMAC-SHA-256 of the URL's token under the server key; the token is not kept.",
    ),
    Column("card_id", ForeignKey(cards.c.id), nullable=False, index=True, comment="The card."),
    _id("api_token_id", "Who asked: the API token, which may have been deleted since."),
    _time("created_at", "When it was asked for."),
    _time("expires_at", "When the page can no longer be opened."),
    _time("opened_at", "When the page was first opened; null: not yet.", nullable=True),
    Column(
        "view_count",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="How often the page was opened, always by the browser that opened it first.",
    ),
    comment="Who asked to see a card's number, and when it was seen. The number is nowhere.",
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="Who sent the key."),
    _text(
        "key",
        "The header Idempotency-Key, as it was sent; for an agent, its id and a line break before.",
    ),
    Column(
        "request_hash",
        LargeBinary,
        nullable=False,
        comment="SHA-256 of method, path and body: tells a repetition from a reuse.",
    ),
    Column(
        "event",
        JSON(none_as_null=True),
        comment="The event that the request sends, to be sent again while there is no answer;"
        " null: it sends none.",
    ),
    Column("status", SmallInteger, comment="Status of the answer; null: not answered yet."),
    Column("answer", LargeBinary, comment="Body of the answer, encrypted with the server key."),
    _time("created_at", "When the key was first used."),
    PrimaryKeyConstraint("platform_id", "key"),
    CheckConstraint("num_nulls(status, answer) IN (0, 2)", name="answer_whole"),
    comment="The first answer to every POST that came with a key; kept for ever.",
)

external_accounts = Table(
    "external_accounts",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The external account."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="Its platform."),
    Column(
        "customer_id",
        ForeignKey(customers.c.id),
        comment="Whose account it is; null: the platform's own.",
    ),
    _text("platform_account_id", "The platform's own identifier.", nullable=True),
    _text("currency", "Its currency."),
    _text("account_type", "Its variant, such as USD_ACCOUNT."),
    _text("status", "PENDING, ACTIVE, UNDER_REVIEW or INACTIVE; only ACTIVE receives."),
    Column(
        "default_uma_deposit_account",
        Boolean,
        nullable=False,
        comment="Whether UMA payments to its customer go there; at most one of a customer's.",
    ),
    Column(
        "fingerprint",
        LargeBinary,
        nullable=False,
        comment="SHA-256 of owner, currency, type and identifiers: equal for the same account.",
    ),
    Column("account_info", JSONB, nullable=False, comment="Its details, as they were sent."),
    _text(
        "beneficiary_verification_status",
        "How its beneficiary's name compares to its holder's; null: wallets, which have none.",
        nullable=True,
    ),
    _text("beneficiary_verified_name", "Its holder's name by the rail, if told.", nullable=True),
    _time("created_at", "When it was registered."),
    _time("updated_at", "When it last changed."),
    _time("deleted_at", "When the platform deleted it; null: not.", nullable=True),
    CheckConstraint("status IN ('PENDING', 'ACTIVE', 'UNDER_REVIEW', 'INACTIVE')", name="status"),
    CheckConstraint(
        "customer_id IS NOT NULL OR NOT default_uma_deposit_account", name="default_has_customer"
    ),
    comment="Bank accounts and wallets outside the service.",
)
Index("external_accounts_platform_id_idx", external_accounts.c.platform_id, external_accounts.c.id)
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

agents = Table(
    "agents",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The agent: a program that acts for a customer."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="Its platform."),
    Column("customer_id", ForeignKey(customers.c.id), nullable=False, comment="Its customer."),
    _text("name", "What people call it."),
    Column("is_paused", Boolean, nullable=False, comment="Whether it may only read for now."),
    Column("policy", JSONB, nullable=False, comment="What it may do, as the interface shows it."),
    Column(
        "access_token_hash",
        LargeBinary,
        unique=True,
        comment="HMAC-SHA-256 of its access token under the server key, which is not kept; null:"
        " not connected.",
    ),
    _time("created_at", "When it was created."),
    _time("updated_at", "When it last changed."),
    _time("deleted_at", "When it was deleted; null: not.", nullable=True),
    CheckConstraint("num_nulls(access_token_hash, deleted_at) >= 1", name="deleted_has_no_access"),
    comment="Programs that act for a customer, within a policy.",
)
Index("agents_platform_id_idx", agents.c.platform_id, agents.c.id)
Index("agents_customer_id_idx", agents.c.customer_id)

agent_device_codes = Table(
    "agent_device_codes",
    metadata,
    Column(
        "code_hash",
        LargeBinary,
        primary_key=True,
        comment="HMAC-SHA-256 of the code under the server key; the code is not kept.",
    ),
    Column("agent_id", ForeignKey(agents.c.id), nullable=False, comment="Whom it connects."),
    _time("created_at", "When it was made."),
    _time("expires_at", "When it can no longer be redeemed."),
    _time("redeemed_at", "When it was redeemed; null: not.", nullable=True),
    _time("replaced_at", "When a newer code took its place; null: not.", nullable=True),
    CheckConstraint("num_nulls(redeemed_at, replaced_at) >= 1", name="one_end"),
    comment="Codes with which a program becomes an agent: one open at a time, one redeemed ever.",
)
Index(
    "agent_device_codes_open_key",
    agent_device_codes.c.agent_id,
    unique=True,
    postgresql_where=agent_device_codes.c.redeemed_at.is_(None)
    & agent_device_codes.c.replaced_at.is_(None),
)
Index(
    "agent_device_codes_redeemed_key",
    agent_device_codes.c.agent_id,
    unique=True,
    postgresql_where=agent_device_codes.c.redeemed_at.isnot(None),
)

system_accounts = Table(
    "system_accounts",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The account, as entries name it."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="Its platform."),
    _text("currency", "Its currency."),
    _text("kind", "Its place in the chart of accounts."),
    UniqueConstraint("platform_id", "currency", "kind"),
    CheckConstraint(
        "kind IN ('CARD_HOLDS', 'NETWORK_SETTLEMENT', 'RECEIVABLE', 'SANDBOX_FUNDING',"
        " 'OPERATOR_LOSS', 'TRANSFERS')",
        name="kind",
    ),
    comment="The platform's side of every movement. No running balance: it would serialise all.",
)

# --- hot: what moves ---------------------------------------------------------------------------

internal_accounts = Table(
    "internal_accounts",
    metadata,
    _id("id", "The account."),
    _id("customer_id", "Its owner."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="Its platform."),
    _text("currency", "Its currency."),
    _text("type", "INTERNAL_FIAT, INTERNAL_CRYPTO or EMBEDDED_WALLET."),
    _text("status", "PENDING, ACTIVE, CLOSED, FROZEN or FAILED; only ACTIVE pays."),
    _amount("balance", "Available: what may be spent. Never negative."),
    _amount("held", "Set aside for clearings to come: sum of its card transactions' holds."),
    _amount("owed", "Taken by the network and not paid yet: sum over its card transactions."),
    _amount("pending", "Pulled and not confirmed yet: sum over its card transactions."),
    Column(
        "version",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="Number of entries on this account.",
    ),
    _time("created_at", "When it was opened."),
    _time("updated_at", "When its amounts last changed."),
    PrimaryKeyConstraint("id", "customer_id"),
    CheckConstraint("balance >= 0", name="balance_not_negative"),
    CheckConstraint("least(held, owed, pending) >= 0", name="sums_not_negative"),
    postgresql_with={"fillfactor": "50"},
    comment="Money of a customer. Locked by a batch in the order of id; written once a batch.",
)
Index("internal_accounts_customer_id_idx", internal_accounts.c.customer_id)
Index("internal_accounts_platform_id_idx", internal_accounts.c.platform_id)

card_transactions = Table(
    "card_transactions",
    metadata,
    _id("id", "The card transaction."),
    _id("customer_id", "The cardholder."),
    _id("platform_id", "The cardholder's platform."),
    _id("card_id", "The card."),
    _id("account_id", "The funding account chosen at the first event."),
    _text("issuer_transaction_token", "What ties the network's events together."),
    _text("currency", "Currency of every amount here."),
    _text("descriptor", "Merchant, as the network names it.", nullable=True),
    _text("mcc", "Merchant category code, ISO 18245.", nullable=True),
    _text("country", "Merchant country, alpha-2.", nullable=True),
    _text("status", "Derived from the totals below; kept for readers."),
    _count("sequence", "Number of events folded into this row."),
    _count("authorizations", "Authorizations heard of, approved or not."),
    _amount("authorized", "Approved and not taken back."),
    _amount("settled", "Sum of clearings."),
    _count("settlement_count", "Number of clearings."),
    _amount("refunded", "Sum of refunds."),
    _count("refund_count", "Number of refunds."),
    _amount("pulled", "Gross sum of pulls paid by the funding account."),
    _count("pull_count", "Pulls opened."),
    _amount("pending", "Part of `pulled` whose confirmation is out."),
    _count("pending_count", "Pulls whose confirmation is out."),
    _amount("open_pull", "What the funding account still has to pay for what settled or is held."),
    _amount("unpaid", "Refund reversals that the funding account still has to pay."),
    _time("debt_since", "Since when something is to be paid: the queue's order.", nullable=True),
    _id("debt_id", "The message since which something is to be paid.", nullable=True),
    _amount("released", "Gross sum of releases to the funding account."),
    _count("release_count", "Number of releases."),
    _text("closed_by", "What made it expect no further clearing; null: open.", nullable=True),
    _amount("declined", "What was asked for and refused, while nothing has been approved."),
    _text("decline_reason", "Why it was refused.", nullable=True),
    _time("expires_at", "When what has not cleared goes back; null: nothing will.", nullable=True),
    _time("created_at", "When its first event was recorded."),
    _time("last_event_at", "Last event after the authorization.", nullable=True),
    _time("updated_at", "When its last event was recorded."),
    PrimaryKeyConstraint("id", "customer_id"),
    UniqueConstraint(
        "customer_id", "card_id", "issuer_transaction_token", name="card_transactions_token_key"
    ),
    CheckConstraint("pulled >= released", name="released_was_pulled"),
    CheckConstraint(
        "least(authorized, settled, refunded, pulled, pending, open_pull, unpaid, released,"
        " declined) >= 0",
        name="totals_not_negative",
    ),
    postgresql_with={"fillfactor": "80"},
    comment="The roll-up: one row a purchase, the fold of its events.",
)
Index("card_transactions_platform_id_idx", card_transactions.c.platform_id, card_transactions.c.id)
Index(
    "card_transactions_debt_idx",
    card_transactions.c.account_id,
    card_transactions.c.debt_since,
    card_transactions.c.debt_id,
    postgresql_where=card_transactions.c.debt_id.isnot(None),
)
Index(
    "card_transactions_expires_at_idx",
    card_transactions.c.expires_at,
    card_transactions.c.id,
    postgresql_where=card_transactions.c.expires_at.isnot(None),
)

card_transaction_events = Table(
    "card_transaction_events",
    metadata,
    _id("card_transaction_id", "The card transaction it belongs to."),
    Column("sequence", Integer, nullable=False, comment="Its place there: 1, 2, 3, ..."),
    _id("customer_id", "The cardholder."),
    _text("kind", "AUTHORIZED, DECLINED, PULLED, PULL_OPENED, ... (ledger.core.events)."),
    Column("amount", BigInteger, nullable=False, comment="Amount of the fact."),
    Column("unfunded", BigInteger, comment="Part of `amount` on the receivable account."),
    Column("final", Boolean, comment="Whether a clearing closed the card transaction."),
    _text("reason", "Why an authorization was refused.", nullable=True),
    _id("message_id", "The message that caused it (outcomes, deposits)."),
    _time("occurred_at", "When it happened, as the network says."),
    _time("recorded_at", "When we recorded it."),
    PrimaryKeyConstraint("card_transaction_id", "sequence", "customer_id"),
    CheckConstraint("sequence > 0 AND amount >= 0", name="amounts"),
    comment="The facts, append-only. Its key makes a second event of the same place impossible.",
)

entries = Table(
    "entries",
    metadata,
    _id("subject_id", "The card transaction, deposit or transfer it belongs to."),
    Column(
        "sequence",
        Integer,
        nullable=False,
        comment="The event there; 0 for a deposit or a transfer.",
    ),
    Column("line", SmallInteger, nullable=False, comment="Its place within the event."),
    _id("customer_id", "The cardholder."),
    _id("debit_account_id", "The account that gives."),
    _id("credit_account_id", "The account that gets."),
    Column(
        "amount",
        BigInteger,
        CheckConstraint("amount > 0", name="amount_positive"),
        nullable=False,
        comment="What moves.",
    ),
    _id("account_id", "The customer's account among the two, if one is.", nullable=True),
    Column("account_version", BigInteger, comment="Number of this entry on `account_id`."),
    Column("balance_after", BigInteger, comment="Balance of `account_id` after it."),
    _time("recorded_at", "When we recorded it."),
    PrimaryKeyConstraint("subject_id", "sequence", "line", "customer_id"),
    CheckConstraint("debit_account_id <> credit_account_id", name="two_accounts"),
    CheckConstraint(
        "num_nulls(account_id, account_version, balance_after) IN (0, 3)",
        name="customer_side",
    ),
    CheckConstraint("balance_after >= 0", name="balance_not_negative"),
    comment="Double entries, append-only: one row moves one amount between two accounts.",
)
Index(
    "entries_account_version_key",
    entries.c.account_id,
    entries.c.account_version,
    entries.c.customer_id,
    unique=True,
    postgresql_where=entries.c.account_id.isnot(None),
)

deposits = Table(
    "deposits",
    metadata,
    _id("id", "The deposit."),
    _id("customer_id", "Owner of the account."),
    _id("account_id", "The account that got the money."),
    Column(
        "amount",
        BigInteger,
        CheckConstraint("amount > 0", name="amount_positive"),
        nullable=False,
        comment="What arrived.",
    ),
    _id("message_id", "The message that brought it (outcomes)."),
    _time("recorded_at", "When we recorded it."),
    _id("platform_id", "Platform of the owner."),
    PrimaryKeyConstraint("id", "customer_id"),
    comment="Money that arrived on an internal account, append-only.",
)
Index("deposits_platform_id_idx", deposits.c.platform_id, deposits.c.id)
Index("deposits_customer_id_idx", deposits.c.customer_id, deposits.c.id)

transfers = Table(
    "transfers",
    metadata,
    _id("id", "The transfer."),
    _id("customer_id", "Owner of both accounts."),
    _id("platform_id", "Platform of the owner."),
    _id("source_account_id", "The account that gives."),
    _id("destination_account_id", "The account that gets."),
    Column(
        "amount",
        BigInteger,
        CheckConstraint("amount > 0", name="amount_positive"),
        nullable=False,
        comment="What moves.",
    ),
    _text("currency", "Currency of both accounts."),
    _text("status", "PENDING (approval), PROCESSING, COMPLETED or FAILED; only ever forward."),
    _text("failure_reason", "Why it failed: a code; null: it has not.", nullable=True),
    _id("agent_id", "The agent that asked for it; null: none did.", nullable=True),
    _text("remittance_information", "What the sender writes to it.", nullable=True),
    _text("purpose_of_payment", "What it is for: a code.", nullable=True),
    _time("created_at", "When it was asked for."),
    _time("settled_at", "When the money moved; null: it has not.", nullable=True),
    _time("updated_at", "When its status last changed."),
    PrimaryKeyConstraint("id", "customer_id"),
    CheckConstraint("status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')", name="status"),
    CheckConstraint("(status = 'FAILED') = (failure_reason IS NOT NULL)", name="failure_reason"),
    CheckConstraint("(status = 'COMPLETED') = (settled_at IS NOT NULL)", name="settled_at"),
    CheckConstraint("source_account_id <> destination_account_id", name="two_accounts"),
    postgresql_with={"fillfactor": "80"},
    comment="Money between two accounts of one customer. The batch that moves it completes it.",
)
Index("transfers_platform_id_idx", transfers.c.platform_id, transfers.c.id)
Index("transfers_customer_id_idx", transfers.c.customer_id, transfers.c.id)
# What an agent has spent of its limits.
Index(
    "transfers_agent_id_idx",
    transfers.c.agent_id,
    transfers.c.created_at,
    postgresql_where=transfers.c.agent_id.isnot(None),
)
Index(
    "transfers_pending_idx",
    transfers.c.platform_id,
    transfers.c.id,
    postgresql_where=transfers.c.status == "PENDING",
)

agent_actions = Table(
    "agent_actions",
    metadata,
    _id("id", "The action; the transfer that it asks for has the same key."),
    Column("agent_id", ForeignKey("agents.id"), nullable=False, comment="Who asks."),
    Column("customer_id", ForeignKey(customers.c.id), nullable=False, comment="Its customer."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="Its platform."),
    _text("type", "TRANSFER_OUT or TRANSFER_IN: how it was asked for."),
    _text("rejection_reason", "What the platform said when it refused.", nullable=True),
    _time("created_at", "When it was asked for."),
    PrimaryKeyConstraint("id"),
    ForeignKeyConstraint(["id", "customer_id"], [transfers.c.id, transfers.c.customer_id]),
    CheckConstraint("type IN ('TRANSFER_OUT', 'TRANSFER_IN')", name="type"),
    comment="What agents have asked for. How it stands is told by the transfer.",
)
Index("agent_actions_agent_id_idx", agent_actions.c.agent_id, agent_actions.c.id)

# --- hot: the way in ---------------------------------------------------------------------------

inbox_shards = Table(
    "inbox_shards",
    metadata,
    Column("lane", SmallInteger, nullable=False, comment="0 live, 1 bulk."),
    Column("shard", SmallInteger, nullable=False, comment="0 .. 15."),
    _text("lock", "Never written: the right to update it is the right to lock.", nullable=True),
    PrimaryKeyConstraint("lane", "shard"),
    comment="One row per queue of the inbox; whoever drains it holds its row lock.",
)

inbox = Table(
    "inbox",
    metadata,
    Column("lane", SmallInteger, nullable=False, comment="0 live, 1 bulk."),
    Column("shard", SmallInteger, nullable=False, comment="Hash of the cardholder."),
    _id("id", "The message; its order of arrival."),
    _id("customer_id", "The cardholder; the nil UUID when nobody owns the card."),
    _id("platform_id", "The platform that sent it."),
    _text("source", "Who sent it."),
    _text("reference", "Its identifier there."),
    Column("body", JSON, nullable=False, comment="The message, as schema.wire parsed it."),
    Column("body_hash", LargeBinary, nullable=False, comment="Hash of what it says."),
    _text("reply_to", "Redis list on which somebody waits for the outcome.", nullable=True),
    _time("received_at", "When it was accepted."),
    PrimaryKeyConstraint("lane", "shard", "id", "customer_id"),
    postgresql_with={
        "fillfactor": "70",
        "autovacuum_vacuum_scale_factor": "0.01",
        "autovacuum_vacuum_cost_delay": "0",
    },
    comment="Messages accepted and not decided yet; a decided one is deleted in the same commit.",
)

outcomes = Table(
    "outcomes",
    metadata,
    _id("customer_id", "The cardholder."),
    _id("platform_id", "The platform that sent the message."),
    _text("source", "Who sent the message."),
    _text("reference", "Its identifier there: with the source, the idempotency key, for ever."),
    Column("body_hash", LargeBinary, nullable=False, comment="Tells a repetition from a reuse."),
    _id("message_id", "The first message with this key."),
    _text("outcome", "APPLIED, DECLINED, IGNORED or PARKED."),
    _text("reason", "Why, where there is a reason.", nullable=True),
    _id("subject_id", "The card transaction or deposit it concerned.", nullable=True),
    Column("sequence", Integer, comment="Last event of that card transaction after it."),
    _time("recorded_at", "When it was decided."),
    PrimaryKeyConstraint("reference", "source", "platform_id", "customer_id"),
    comment="What became of every message that was understood, for ever: none is applied twice.",
)

# From an event back to the message that caused it: the way of everybody who asks why.
Index("outcomes_message_id_idx", outcomes.c.message_id)

rejections = Table(
    "rejections",
    metadata,
    _id("id", "The message."),
    _id("customer_id", "The cardholder; the nil UUID when nobody owns the card."),
    _id("platform_id", "The platform that sent it."),
    _text("source", "Who sent it, as far as it can be read.", nullable=True),
    _text("reference", "Its identifier there, as far as it can be read.", nullable=True),
    _text("body", "The message as it came."),
    _text("reason", "Why it was not applied: a code."),
    _text("detail", "What to change, in words.", nullable=True),
    _time("recorded_at", "When it was rejected."),
    PrimaryKeyConstraint("id", "customer_id"),
    comment="Messages that could not be understood or applied, kept with their reason.",
)

parked = Table(
    "parked",
    metadata,
    _id("id", "The message."),
    _id("customer_id", "The cardholder."),
    _id("card_id", "The card."),
    _text("issuer_transaction_token", "What it waits for."),
    Column("body", JSON, nullable=False, comment="The message, as schema.wire parsed it."),
    _time("received_at", "When it was accepted."),
    PrimaryKeyConstraint("customer_id", "card_id", "issuer_transaction_token", "id"),
    comment="Messages that take back what has not arrived yet; deleted when it has.",
)

pending_pulls = Table(
    "pending_pulls",
    metadata,
    _id("card_transaction_id", "The card transaction."),
    Column("sequence", Integer, nullable=False, comment="The event that made the pull."),
    _id("customer_id", "The cardholder."),
    _id("card_id", "The card."),
    _text("issuer_transaction_token", "What ties the events of the card transaction together."),
    Column("amount", BigInteger, nullable=False, comment="What was pulled."),
    Column("succeeds", Boolean, nullable=False, comment="What the sandbox will answer."),
    _time("due_at", "When it will answer."),
    PrimaryKeyConstraint("card_transaction_id", "sequence", "customer_id"),
    comment="Pulls whose confirmation is out; deleted when it is asked for.",
)
Index("pending_pulls_due_at_idx", pending_pulls.c.due_at)

# --- cold: who is told -------------------------------------------------------------------------

webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The endpoint."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="Its platform."),
    Column(
        "is_default",
        Boolean,
        nullable=False,
        comment="Whether it is the webhookEndpoint of the platform's settings.",
    ),
    _text("url", "Where its webhooks go."),
    _text("description", "What the platform calls it.", nullable=True),
    Column(
        "event_types",
        ARRAY(Text),
        nullable=False,
        comment="Types that it wants, such as CARD_TRANSACTION.*; empty: all.",
    ),
    _text("mode", "FIFO: each resource's webhooks strictly in order; PARALLEL: as they come."),
    _text("state", "ENABLED or DISABLED; what a disabled one should be told waits."),
    _text("disabled_reason", "PLATFORM, GONE or FAILING; null: enabled.", nullable=True),
    Column(
        "secret",
        LargeBinary,
        comment="Its HMAC secret, encrypted with the server key; null: the platform's.",
    ),
    Column("former_secret", LargeBinary, comment="The secret before; it still signs for a while."),
    _time("former_secret_until", "Until when the secret before signs too.", nullable=True),
    _time("failing_since", "First failure after which nothing was delivered.", nullable=True),
    _time("created_at", "When it was set up."),
    _time("updated_at", "When it was last changed."),
    _time("deleted_at", "When the platform took it away; null: not.", nullable=True),
    CheckConstraint("mode IN ('FIFO', 'PARALLEL')", name="mode"),
    CheckConstraint("state IN ('ENABLED', 'DISABLED')", name="state"),
    CheckConstraint(
        "disabled_reason IS NULL OR disabled_reason IN ('PLATFORM', 'GONE', 'FAILING')",
        name="disabled_reason",
    ),
    CheckConstraint(
        "(state = 'DISABLED') = (disabled_reason IS NOT NULL)", name="disabled_has_reason"
    ),
    CheckConstraint(
        "(former_secret IS NULL) = (former_secret_until IS NULL)", name="former_secret_ends"
    ),
    comment="Where a platform is told; deleted ones are kept for their deliveries.",
)
Index(
    "webhook_endpoints_platform_id_idx",
    webhook_endpoints.c.platform_id,
    webhook_endpoints.c.id,
)
Index(
    "webhook_endpoints_default_key",
    webhook_endpoints.c.platform_id,
    unique=True,
    postgresql_where=webhook_endpoints.c.is_default,
)

webhook_signing_keys = Table(
    "webhook_signing_keys",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The key."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="Whose key it is."),
    Column(
        "private_key",
        LargeBinary,
        nullable=False,
        comment="P-256 private key, encrypted with the server key.",
    ),
    _text("public_key", "The PEM public key that belongs to it."),
    _time("signs_from", "When it takes over from the key before."),
    _time("former_until", "Until when the key before is published beside it."),
    _time("created_at", "When it was made, and published."),
    comment="Keys of X-Grid-Signature after a platform's first; no right to change them.",
)
Index(
    "webhook_signing_keys_platform_id_idx",
    webhook_signing_keys.c.platform_id,
    webhook_signing_keys.c.id,
)

# --- hot: the way out --------------------------------------------------------------------------

outbox = Table(
    "outbox",
    metadata,
    _id("id", "The webhook, as receivers see it."),
    _id("customer_id", "The cardholder."),
    _id("platform_id", "The platform to tell."),
    _text("type", "Webhook event type."),
    _id("subject_id", "The resource concerned."),
    Column(
        "sequence",
        BigInteger,
        comment="Event of the card transaction, or entry of the account, that it tells of.",
    ),
    Column("data", JSON, comment="The resource as it was; null: folded from its events."),
    _time("recorded_at", "When it happened."),
    _time("retry_at", "When to render it again, after it could not be.", nullable=True),
    PrimaryKeyConstraint("id", "customer_id"),
    postgresql_with={
        "fillfactor": "70",
        "autovacuum_vacuum_scale_factor": "0.01",
        "autovacuum_vacuum_cost_delay": "0",
    },
    comment="What has to be told, written with the fact; dispatching moves it to deliveries.",
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    _id("id", "The delivery: one webhook on its way to one endpoint."),
    _id("customer_id", "The cardholder."),
    _id("platform_id", "The platform to tell."),
    _text("type", "Webhook event type."),
    _id("subject_id", "The resource concerned."),
    Column("sequence", BigInteger, comment="As in the outbox."),
    _text("body", "The exact bytes that are sent, UTF-8."),
    _text("state", "PENDING, DELIVERED, FAILED or NO_ENDPOINT."),
    _count("attempts", "Attempts made."),
    _time(
        "next_attempt_at",
        "When the next attempt is due; from 9999 on: its place behind others; null: none.",
        nullable=True,
    ),
    Column("last_status", SmallInteger, comment="HTTP status of the last attempt."),
    _time("created_at", "When it was dispatched."),
    _time("delivered_at", "When a receiver took it.", nullable=True),
    _id("webhook_id", "The webhook, as receivers see it: constant over endpoints and attempts."),
    _id("endpoint_id", "Where it goes; null: there was no endpoint.", nullable=True),
    _count("attempts_before", "Attempts made before it was last asked for again."),
    PrimaryKeyConstraint("id", "customer_id"),
    CheckConstraint("state IN ('PENDING', 'DELIVERED', 'FAILED', 'NO_ENDPOINT')", name="state"),
    CheckConstraint("(state = 'PENDING') = (next_attempt_at IS NOT NULL)", name="pending_is_due"),
    postgresql_with={
        "autovacuum_vacuum_scale_factor": "0.01",
        "autovacuum_vacuum_cost_delay": "0",
    },
    comment="One webhook and its way to a receiver.",
)
# The endpoint first: one with a long backlog must not hide the others from a claim.
Index(
    "webhook_deliveries_due_idx",
    webhook_deliveries.c.endpoint_id,
    webhook_deliveries.c.next_attempt_at,
    webhook_deliveries.c.webhook_id,
    postgresql_where=webhook_deliveries.c.next_attempt_at.isnot(None),
)
# What is next about a resource, where order is promised.
Index(
    "webhook_deliveries_next_idx",
    webhook_deliveries.c.endpoint_id,
    webhook_deliveries.c.subject_id,
    webhook_deliveries.c.next_attempt_at,
    webhook_deliveries.c.webhook_id,
    postgresql_where=webhook_deliveries.c.next_attempt_at.isnot(None),
)
Index(
    "webhook_deliveries_platform_id_idx",
    webhook_deliveries.c.platform_id,
    webhook_deliveries.c.id,
)

Index(
    "webhook_deliveries_subject_id_idx",
    webhook_deliveries.c.platform_id,
    webhook_deliveries.c.subject_id,
    webhook_deliveries.c.id,
)

webhook_attempts = Table(
    "webhook_attempts",
    metadata,
    _id("delivery_id", "The delivery."),
    Column("number", Integer, nullable=False, comment="1, 2, 3, ..."),
    _id("customer_id", "The cardholder."),
    _time("attempted_at", "When the request was sent."),
    Column("duration_ms", Integer, nullable=False, comment="How long it took."),
    Column("status", SmallInteger, comment="HTTP status; null when none came."),
    _text("error", "What went wrong, when no status came.", nullable=True),
    _text("response_head", "First bytes of the answer.", nullable=True),
    PrimaryKeyConstraint("delivery_id", "number", "customer_id"),
    comment="Every attempt to deliver a webhook, append-only.",
)

APPEND_ONLY: Final = (
    card_transaction_events,
    entries,
    deposits,
    outcomes,
    rejections,
    webhook_attempts,
)
"""Tables whose rows nobody may change: no right to, and a trigger for those who have it."""
