"""The books: accounts, card transactions, events, entries, deposits."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKey,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP

from cardledger.schema.tables.accounting import chart_of_accounts
from cardledger.schema.tables.columns import amount, count, key, metadata, text_column, timestamp
from cardledger.schema.tables.platforms import platforms

system_accounts = Table(
    "system_accounts",
    metadata,
    Column(
        "id",
        Uuid,
        primary_key=True,
        comment="The account; `entries.debit_account_id` and `credit_account_id` refer to it.",
    ),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    text_column("currency", "Its currency."),
    Column(
        "kind",
        Text,
        ForeignKey(chart_of_accounts.c.kind),
        nullable=False,
        comment="Account of the chart (`chart_of_accounts`, which has its class): CARD_HOLDS,"
        " NETWORK_SETTLEMENT, RECEIVABLE, SANDBOX_FUNDING, OPERATOR_LOSS, SETTLEMENT_BANK,"
        " SUSPENSE, INTERCHANGE, NETWORK_FEES; TRANSFERS: in transit between two accounts;"
        " OUTBOUND_CLEARING, INBOUND_CLEARING: payments in flight; FX: conversions.",
    ),
    UniqueConstraint("platform_id", "currency", "kind"),
    CheckConstraint("kind <> 'CUSTOMER'", name="kind"),
    comment="System accounts of the chart, one of each kind for each platform and currency."
    " They have no running balance: updating one would serialize all batches.",
)

internal_accounts = Table(
    "internal_accounts",
    metadata,
    key("id", "The account."),
    key("customer_id", "Its owner."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    text_column("currency", "Its currency."),
    text_column("type", "INTERNAL_FIAT, INTERNAL_CRYPTO or EMBEDDED_WALLET."),
    text_column(
        "status", "PENDING, ACTIVE, CLOSED, FROZEN or FAILED; only ACTIVE accounts can be debited."
    ),
    amount(
        "balance",
        "Available balance, minor units of `currency`; never negative. Liability, normal"
        " balance credit.",
    ),
    amount("held", "Held for expected clearings: sum over its card transactions, minor units."),
    amount(
        "owed",
        "Cleared by the network and not yet funded: sum over its card transactions, minor units.",
    ),
    amount("pending", "Pulled and not yet confirmed: sum over its card transactions, minor units."),
    Column(
        "version",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="Number of entries on this account; rises by one with each.",
    ),
    timestamp("created_at", "When it was opened."),
    timestamp("updated_at", "When the amounts last changed."),
    PrimaryKeyConstraint("id", "customer_id"),
    CheckConstraint("balance >= 0", name="balance_not_negative"),
    CheckConstraint("least(held, owed, pending) >= 0", name="sums_not_negative"),
    postgresql_with={"fillfactor": "50"},
    comment="Internal accounts: funds of a customer. A batch locks them in order of id and"
    " updates each once.",
)
Index("internal_accounts_customer_id_idx", internal_accounts.c.customer_id)
Index("internal_accounts_platform_id_idx", internal_accounts.c.platform_id)
# For lists by these filters.
Index("internal_accounts_list_idx", internal_accounts.c.platform_id, internal_accounts.c.id)
Index(
    "internal_accounts_currency_idx",
    internal_accounts.c.platform_id,
    internal_accounts.c.currency,
    internal_accounts.c.id,
)
Index(
    "internal_accounts_type_idx",
    internal_accounts.c.platform_id,
    internal_accounts.c.type,
    internal_accounts.c.id,
)

card_transactions = Table(
    "card_transactions",
    metadata,
    key("id", "The card transaction."),
    key("customer_id", "The cardholder."),
    key("platform_id", "The cardholder's platform."),
    key("card_id", "The card."),
    key("account_id", "The funding account, chosen at the first event."),
    text_column(
        "issuer_transaction_token",
        "Issuer transaction token: identifies the card transaction at the network.",
    ),
    text_column("currency", "Currency of all amounts of the row."),
    text_column("descriptor", "Merchant descriptor sent by the network.", nullable=True),
    text_column("mcc", "Merchant category code, ISO 18245.", nullable=True),
    text_column("country", "Merchant country, ISO 3166-1 alpha-2.", nullable=True),
    text_column("status", "Status, derived from the totals of the row."),
    count("sequence", "Number of events folded into this row."),
    count("authorizations", "Number of authorizations, approved or declined."),
    amount("authorized", "Authorized amount net of reversals, minor units."),
    amount("settled", "Total of clearings, net of clearing reversals, minor units."),
    count("settlement_count", "Number of clearings."),
    amount("refunded", "Total of refunds, net of refund reversals, minor units."),
    count("refund_count", "Number of refunds."),
    amount("pulled", "Gross total of pulls debited from the funding account, minor units."),
    count("pull_count", "Number of pulls opened."),
    amount("pending", "Part of `pulled` that awaits confirmation, minor units."),
    count("pending_count", "Number of pulls that await confirmation."),
    amount("open_pull", "Open pull: amount due from the funding account, minor units."),
    amount("unpaid", "Unpaid refund reversals: amount due from the funding account, minor units."),
    timestamp(
        "debt_since",
        "Since when an amount is due; open pulls are retried in this order.",
        nullable=True,
    ),
    key("debt_id", "The message since which an amount is due.", nullable=True),
    amount("released", "Gross total of releases to the funding account, minor units."),
    count("release_count", "Number of releases."),
    text_column("closed_by", "Event that closed the card transaction; null: open.", nullable=True),
    amount("declined", "Declined amount while no authorization is approved, minor units."),
    text_column("decline_reason", "Decline reason.", nullable=True),
    timestamp(
        "expires_at",
        "When the uncleared amount is released; null: no amount is held.",
        nullable=True,
    ),
    timestamp("created_at", "When the first event was recorded."),
    timestamp("last_event_at", "Time of the last event after the authorization.", nullable=True),
    timestamp("updated_at", "When the last event was recorded."),
    amount(
        "written_off", "Written off as a loss of what was owed, less what came back, minor units."
    ),
    amount("debits_written_off", "Part of `written_off` that was of `unpaid`, minor units."),
    Column(
        "credit_authorized",
        BigInteger,
        comment="Authorized total of a credit, minor units; null: none was ever authorized.",
    ),
    Column(
        "merchant_amount",
        BigInteger,
        comment="Of its last conversion (`conversion_details`); null: it has none.",
    ),
    text_column("merchant_currency", "Of its last conversion.", nullable=True),
    Column("billing_amount", BigInteger, comment="Of its last conversion."),
    Column("conversion_rate", Numeric(24, 12), comment="Of its last conversion."),
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
    CheckConstraint("debits_written_off BETWEEN 0 AND written_off", name="written_off"),
    CheckConstraint("credit_authorized >= 0", name="credit_authorized"),
    CheckConstraint(
        "num_nulls(merchant_amount, merchant_currency, billing_amount, conversion_rate) IN (0, 4)",
        name="conversion",
    ),
    postgresql_with={"fillfactor": "80"},
    comment="Card transactions: one row for each purchase, the fold of its events.",
)
Index("card_transactions_platform_id_idx", card_transactions.c.platform_id, card_transactions.c.id)
Index(
    "card_transactions_debt_idx",
    card_transactions.c.account_id,
    card_transactions.c.debt_since,
    card_transactions.c.debt_id,
    postgresql_where=card_transactions.c.debt_id.isnot(None),
)
# The exceptions of a platform, the oldest first. The condition is another than that of the index of
# debts, though it has the same rows, so that the engine's look-up of debts cannot use this one.
Index(
    "card_transactions_open_exceptions_idx",
    card_transactions.c.platform_id,
    card_transactions.c.debt_since,
    card_transactions.c.id,
    postgresql_where=card_transactions.c.debt_since.isnot(None),
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
    key("card_transaction_id", "The card transaction."),
    Column(
        "sequence",
        Integer,
        nullable=False,
        comment="Position within the card transaction: 1, 2, 3, ...",
    ),
    key("customer_id", "The cardholder."),
    text_column(
        "kind",
        "Event type: AUTHORIZED, DECLINED, PULLED, PULL_OPENED, CLEARED, RELEASED, REFUNDED, ...",
    ),
    Column(
        "amount",
        BigInteger,
        nullable=False,
        comment="Amount of the event, minor units of the card transaction's currency.",
    ),
    Column(
        "unfunded",
        BigInteger,
        comment="Part of `amount` that the hold did not cover, booked on the receivable account.",
    ),
    Column("final", Boolean, comment="Whether a clearing closed the card transaction."),
    text_column("reason", "Decline reason.", nullable=True),
    key("message_id", "The message that caused the event (`outcomes.message_id`)."),
    timestamp("occurred_at", "When the event happened at the network."),
    timestamp("recorded_at", "When the ledger recorded it."),
    PrimaryKeyConstraint("card_transaction_id", "sequence", "customer_id"),
    CheckConstraint("sequence > 0 AND amount >= 0", name="amounts"),
    comment="Events of card transactions, append-only. The primary key rules out two events"
    " with one position.",
)

entries = Table(
    "entries",
    metadata,
    key("subject_id", "The card transaction, deposit, transfer or item of suspense."),
    Column(
        "sequence",
        Integer,
        nullable=False,
        comment="Event of the card transaction or payment; 0 for a deposit or a transfer between"
        " two accounts of one owner; of an item of suspense 0: booked, 1: taken back.",
    ),
    Column("line", SmallInteger, nullable=False, comment="Position within the event."),
    key("customer_id", "The cardholder."),
    key("debit_account_id", "Debit account."),
    key("credit_account_id", "Credit account."),
    Column(
        "amount",
        BigInteger,
        CheckConstraint("amount > 0", name="amount_positive"),
        nullable=False,
        comment="Amount, minor units; always positive.",
    ),
    key(
        "account_id",
        "The customer account of the entry; null: both are system accounts.",
        nullable=True,
    ),
    Column(
        "account_version", BigInteger, comment="Position of the entry on `account_id`: 1, 2, 3, ..."
    ),
    Column(
        "balance_after", BigInteger, comment="Balance of `account_id` after the entry, minor units."
    ),
    timestamp("recorded_at", "When the ledger recorded it."),
    # The defaults are for workers of a release before schema 0038.
    Column(
        "occurred_at",
        TIMESTAMP(timezone=True),
        server_default=text("now()"),
        comment="When what the entry books happened, at the network where it happened there.",
    ),
    Column(
        "posted_on",
        Date,
        server_default=text("((now() AT TIME ZONE 'UTC'::text))::date"),
        comment="The business day in whose books the entry counts.",
    ),
    Column(
        "late_from",
        Date,
        comment="The closed day in whose books the entry would have counted; null: it is not late.",
    ),
    PrimaryKeyConstraint("subject_id", "sequence", "line", "customer_id"),
    CheckConstraint("debit_account_id <> credit_account_id", name="two_accounts"),
    CheckConstraint(
        "num_nulls(account_id, account_version, balance_after) IN (0, 3)",
        name="customer_side",
    ),
    CheckConstraint("balance_after >= 0", name="balance_not_negative"),
    CheckConstraint("num_nulls(occurred_at, posted_on) = 0", name="dates"),
    comment="Journal entries, append-only: each row debits one account and credits another by"
    " one amount.",
)
Index(
    "entries_account_version_key",
    entries.c.account_id,
    entries.c.account_version,
    entries.c.customer_id,
    unique=True,
    postgresql_where=entries.c.account_id.isnot(None),
)
# Some pages for a million entries, which are recorded in about this order. A balance reads some
# thousand entries by it: in small spans there are few others.
Index(
    "entries_recorded_idx",
    entries.c.recorded_at,
    postgresql_using="brin",
    postgresql_with={"pages_per_range": "32"},
)

deposits = Table(
    "deposits",
    metadata,
    key("id", "The deposit."),
    key("customer_id", "Owner of the account."),
    key("account_id", "The account that was credited."),
    Column(
        "amount",
        BigInteger,
        CheckConstraint("amount > 0", name="amount_positive"),
        nullable=False,
        comment="Amount, minor units; always positive.",
    ),
    key("message_id", "The message that caused the deposit (`outcomes.message_id`)."),
    timestamp("recorded_at", "When the ledger recorded it."),
    key("platform_id", "Platform of the owner."),
    timestamp("occurred_at", "When the money arrived, if the message has it.", nullable=True),
    text_column(
        "external_reference", "Reference of the payment outside of the ledger.", nullable=True
    ),
    PrimaryKeyConstraint("id", "customer_id"),
    comment="Deposits to internal accounts, append-only.",
)
Index("deposits_platform_id_idx", deposits.c.platform_id, deposits.c.id)
Index("deposits_customer_id_idx", deposits.c.customer_id, deposits.c.id)
