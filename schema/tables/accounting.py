"""What finance needs beside the entries: chart, currencies, business days, settlement, suspense.

Only `settlement_details` and `suspense_items` are written by batches of the engine.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Time,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

from cardledger.schema.tables.columns import key, metadata, text_column, timestamp

chart_of_accounts = Table(
    "chart_of_accounts",
    metadata,
    text_column("kind", "Kind of account: one of `system_accounts.kind`, or CUSTOMER."),
    text_column("class", "ASSET, LIABILITY, INCOME or EXPENSE."),
    text_column(
        "normal_side", "Side on which the account grows: D (debit) for ASSET and EXPENSE, else C."
    ),
    PrimaryKeyConstraint("kind"),
    CheckConstraint("class IN ('ASSET', 'LIABILITY', 'INCOME', 'EXPENSE')", name="class"),
    CheckConstraint(
        "normal_side = CASE WHEN class IN ('ASSET', 'EXPENSE') THEN 'D' ELSE 'C' END",
        name="normal_side",
    ),
    comment="Chart of accounts: the class of every kind of account; written by migrations.",
)

currencies = Table(
    "currencies",
    metadata,
    text_column("code", "ISO 4217 code, or the ticker of a crypto currency."),
    Column(
        "decimals",
        SmallInteger,
        nullable=False,
        comment="Decimal places: amounts in minor units are divided by 10 to this power.",
    ),
    PrimaryKeyConstraint("code"),
    CheckConstraint("decimals BETWEEN 0 AND 18", name="decimals"),
    comment="Currencies of the ledger; written by migrations.",
)

calendars = Table(
    "calendars",
    metadata,
    text_column(
        "name", "Network (`settlement_details.network`), or BOOKS for all that has no calendar."
    ),
    Column(
        "valid_from",
        Date,
        nullable=False,
        comment="First day, in UTC, whose movements the version applies to.",
    ),
    text_column("time_zone", "Time zone of the business day, as in the IANA database."),
    Column(
        "cut_off",
        Time,
        nullable=False,
        comment="Local time from which a movement belongs to the next day; 00:00: midnight, so a"
        " business day is a calendar day.",
    ),
    Column(
        "days",
        ARRAY(SmallInteger),
        nullable=False,
        comment="Days of the week that settle, 1 (Monday) to 7 (Sunday).",
    ),
    Column(
        "holidays",
        ARRAY(Date),
        nullable=False,
        server_default=text("'{}'"),
        comment="Dates that do not settle.",
    ),
    Column(
        "created_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=text("now()"),
        comment="When the version was added.",
    ),
    Column(
        "created_by",
        Text,
        nullable=False,
        server_default=text("SESSION_USER"),
        comment="The login that added it; written by the database.",
    ),
    PrimaryKeyConstraint("name", "valid_from"),
    CheckConstraint("name ~ '^[A-Z0-9][A-Z0-9_-]*$' AND length(name) <= 64", name="name"),
    CheckConstraint(
        "cardinality(days) > 0 AND days <@ '{1,2,3,4,5,6,7}'::smallint[]", name="days_of_the_week"
    ),
    comment="Business days of networks and of the books, a row for each version, append-only."
    " Without a row for BOOKS a business day is a calendar day in UTC.",
)

books = Table(
    "books",
    metadata,
    Column("is_only", Boolean, primary_key=True, comment="True."),
    Column(
        "first_open_day",
        Date,
        nullable=False,
        comment="No entry is posted before this day: an earlier movement is posted on it.",
    ),
    Column(
        "suspense_since",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=text("now()"),
        comment="From when on each movement of the network that is rejected or parked has a row in"
        " suspense_items.",
    ),
    CheckConstraint("is_only", name="is_only"),
    comment="One row: which days the books are open for.",
)

settlement_details = Table(
    "settlement_details",
    metadata,
    key("card_transaction_id", "The card transaction."),
    Column(
        "sequence",
        Integer,
        nullable=False,
        comment="First event of the message (`card_transaction_events.sequence`).",
    ),
    key("customer_id", "The cardholder."),
    key("platform_id", "The cardholder's platform."),
    key("message_id", "The message (`outcomes.message_id`)."),
    text_column("network", "The network, such as VISA."),
    text_column("institution_id", "Identifier of the institution at the network.", nullable=True),
    Column(
        "settlement_date",
        Date,
        nullable=False,
        comment="Business date of the network on which it settles the movement.",
    ),
    text_column("cycle", "Settlement cycle within that date.", nullable=True),
    text_column("acquirer_reference", "Acquirer reference number (ARN), 23 digits.", nullable=True),
    text_column(
        "network_reference", "Transaction identifier or trace id of the network.", nullable=True
    ),
    Column(
        "merchant_amount",
        BigInteger,
        comment="Amount in the currency of the merchant, minor units of `merchant_currency`.",
    ),
    text_column("merchant_currency", "Currency of the merchant, ISO 4217.", nullable=True),
    Column(
        "interchange",
        Numeric(20, 6),
        comment="Interchange in major units of the card transaction's currency; positive: earned.",
    ),
    text_column("fee_program", "Fee program of the interchange.", nullable=True),
    timestamp("recorded_at", "When the ledger recorded it."),
    PrimaryKeyConstraint("card_transaction_id", "sequence", "customer_id"),
    CheckConstraint(
        "num_nulls(merchant_amount, merchant_currency) IN (0, 2)", name="merchant_amount"
    ),
    comment="What the network said about the settlement of an event, append-only; no row: nothing.",
)
# Some pages for a million rows, which are recorded in about the order of their days.
Index(
    "settlement_details_day_idx",
    settlement_details.c.settlement_date,
    postgresql_using="brin",
    postgresql_with={"pages_per_range": "32"},
)

conversion_details = Table(
    "conversion_details",
    metadata,
    key("card_transaction_id", "The card transaction."),
    Column(
        "sequence",
        Integer,
        nullable=False,
        comment="First event of the message (`card_transaction_events.sequence`).",
    ),
    key("customer_id", "The cardholder."),
    key("platform_id", "The cardholder's platform."),
    key("message_id", "The message (`outcomes.message_id`)."),
    Column(
        "merchant_amount",
        BigInteger,
        nullable=False,
        comment="Amount in the currency of the merchant, minor units of `merchant_currency`.",
    ),
    text_column("merchant_currency", "Currency of the merchant, ISO 4217."),
    Column(
        "billing_amount",
        BigInteger,
        nullable=False,
        comment="Amount of the message, minor units of the card transaction's currency.",
    ),
    Column(
        "rate",
        Numeric(24, 12),
        nullable=False,
        comment="Units of the card transaction's currency for one of the merchant's, as the network"
        " said it.",
    ),
    timestamp("recorded_at", "When the ledger recorded it."),
    PrimaryKeyConstraint("card_transaction_id", "sequence", "customer_id"),
    CheckConstraint("least(merchant_amount, billing_amount) >= 0 AND rate > 0", name="amounts"),
    comment="How the network converted the amount of an event, append-only; no row: it did not.",
)

suspense_items = Table(
    "suspense_items",
    metadata,
    key(
        "id",
        "The message (`rejections.id`, `parked.id`, or that of a return); `entries.subject_id` of"
        " what was booked.",
    ),
    key("customer_id", "The cardholder, or the customer whose payout was returned."),
    key("platform_id", "The platform of the card or the payout."),
    text_column("source", "Sender; null when unreadable.", nullable=True),
    text_column("reference", "Identifier at the sender; null when unreadable.", nullable=True),
    key("card_id", "The card; null: a payout that was returned.", nullable=True),
    text_column(
        "type",
        "Type of the event: CLEARING, CLEARING_REVERSAL, RETURN, RETURN_REVERSAL or"
        " FINANCIAL_CREDIT_AUTHORIZATION; of a clearing of a credit RETURN, of its reversal"
        " RETURN_REVERSAL; or PAYOUT_RETURN: a payout was returned.",
    ),
    text_column(
        "currency", "Currency of the card, or of what was returned, in which it is booked."
    ),
    Column("amount", BigInteger, nullable=False, comment="Amount, minor units; always positive."),
    text_column("cause", "REJECTED, PARKED or CLOSED: the account is."),
    text_column(
        "reason", "Rejection code; null: it is parked, or the account is closed.", nullable=True
    ),
    timestamp("recorded_at", "When it was booked."),
    Column(
        "posted_on",
        Date,
        nullable=False,
        comment="The business day in whose books it was booked.",
    ),
    timestamp(
        "resolved_at",
        "When it was taken back, or left the ledger (CLOSED); null: it is open.",
        nullable=True,
    ),
    key(
        "resolved_by",
        "The message or adjustment that resolved it; a parked message that was applied: itself.",
        nullable=True,
    ),
    text_column(
        "network",
        "Network of the settlement details that the message had; null: none that could be read.",
        nullable=True,
    ),
    Column(
        "settlement_date",
        Date,
        comment="Settlement date that the message had; null: none that could be read.",
    ),
    PrimaryKeyConstraint("id", "customer_id"),
    CheckConstraint("amount > 0", name="amount"),
    CheckConstraint("cause IN ('REJECTED', 'PARKED', 'CLOSED')", name="cause"),
    CheckConstraint(
        "(card_id IS NULL) = (cause = 'CLOSED') AND (type = 'PAYOUT_RETURN') = (cause = 'CLOSED')",
        name="card",
    ),
    CheckConstraint("num_nulls(resolved_at, resolved_by) IN (0, 2)", name="resolution"),
    CheckConstraint("num_nulls(network, settlement_date) IN (0, 2)", name="settlement"),
    CheckConstraint(
        "type IN ('CLEARING', 'CLEARING_REVERSAL', 'RETURN', 'RETURN_REVERSAL',"
        " 'FINANCIAL_CREDIT_AUTHORIZATION', 'PAYOUT_RETURN')",
        name="type",
    ),
    comment="What SUSPENSE consists of: movements of the network that were rejected or parked, and"
    " payouts that were returned to a closed account. A row is only ever resolved, once.",
)
# Hashes, because a reference may be longer than an index can hold.
Index(
    "suspense_items_open_idx",
    suspense_items.c.platform_id,
    func.md5(suspense_items.c.reference),
    postgresql_where=suspense_items.c.resolved_at.is_(None),
)
Index("suspense_items_reference_idx", func.md5(suspense_items.c.reference))
