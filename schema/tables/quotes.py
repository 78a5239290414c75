"""Quotes: payments that were promised at a price until a time."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from cardledger.schema.tables.columns import key, metadata, text_column, timestamp
from cardledger.schema.tables.platforms import platforms

quotes = Table(
    "quotes",
    metadata,
    key("id", "The quote; ids rise with time."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    key("customer_id", "Who pays: a customer, or the platform itself (`platform_id`)."),
    key("agent_id", "The agent that requested it; null: not requested by an agent.", nullable=True),
    text_column(
        "status",
        "PENDING, PENDING_AUTHORIZATION (of the customer), EXECUTED or EXPIRED; what "
        "became of an executed one is in transfers.",
    ),
    key(
        "transaction_id",
        "The id that its payment has (`transfers.id`), promised from the beginning.",
    ),
    key(
        "source_account_id",
        "Internal account that pays; with realtime funding the one on which the money arrives.",
    ),
    Column(
        "is_funded",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="Whether the money arrives from outside (realtime funding).",
    ),
    text_column(
        "crypto_network",
        "Network by which it arrives; null: a bank, or not from outside.",
        nullable=True,
    ),
    key(
        "destination_account_id",
        "Internal or external account that is paid; null: a UMA address elsewhere.",
        nullable=True,
    ),
    Column(
        "is_external",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="Whether `destination_account_id` is an external account.",
    ),
    text_column("uma_address", "UMA address that is paid; null: an account.", nullable=True),
    key("peer_id", "Owner of the internal account that is paid, if another one.", nullable=True),
    key("peer_platform_id", "Platform of that owner.", nullable=True),
    text_column("payment_rail", "Rail of an external bank account.", nullable=True),
    text_column("rail_selection", "AUTO or MANUAL; null without a rail.", nullable=True),
    text_column("sending_currency", "Currency that is sent."),
    text_column("receiving_currency", "Currency that is received."),
    text_column("locked_side", "SENDING or RECEIVING: which amount was chosen."),
    Column(
        "sending_amount",
        BigInteger,
        nullable=False,
        comment="Amount that is sent, fees included, minor units.",
    ),
    Column(
        "receiving_amount",
        BigInteger,
        nullable=False,
        comment="Amount that is received, minor units.",
    ),
    Column("fee_amount", BigInteger, nullable=False, comment="Fees, part of `sending_amount`."),
    Column("fee_fixed", BigInteger, nullable=False, comment="Fixed part of the fees."),
    Column(
        "fee_bps", Integer, nullable=False, comment="Variable part of the fees, in basis points."
    ),
    Column(
        "rate_numerator",
        BigInteger,
        nullable=False,
        comment="Rate: numerator / denominator minor units received for one sent.",
    ),
    Column("rate_denominator", BigInteger, nullable=False, comment="Denominator of the rate."),
    Column(
        "executes_at_once",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="Whether it is executed as soon as it may be, without a request.",
    ),
    text_column("description", "Text of the sender.", nullable=True),
    text_column("remittance_information", "Remittance information of the sender.", nullable=True),
    text_column("purpose_of_payment", "Purpose code.", nullable=True),
    Column(
        "sender_information",
        JSONB(none_as_null=True),
        nullable=True,
        comment="What the institution of the receiver asked about the sender, as submitted.",
    ),
    timestamp("created_at", "Time of the request."),
    timestamp("expires_at", "Until when it can be executed."),
    timestamp("executed_at", "When it was executed; null: not executed.", nullable=True),
    timestamp("updated_at", "When its status last changed."),
    Column(
        "mac",
        LargeBinary,
        comment="MAC of its terms, which are all columns but the status and its times, by the"
        " process that made it; null: made by a release before schema 0147.",
    ),
    PrimaryKeyConstraint("id"),
    UniqueConstraint("transaction_id"),
    CheckConstraint(
        "status IN ('PENDING', 'PENDING_AUTHORIZATION', 'EXECUTED', 'EXPIRED')", name="status"
    ),
    CheckConstraint("(status = 'EXECUTED') = (executed_at IS NOT NULL)", name="executed_at"),
    CheckConstraint(
        "least(sending_amount, receiving_amount) > 0"
        " AND fee_amount >= 0 AND fee_amount < sending_amount",
        name="amounts",
    ),
    CheckConstraint("least(rate_numerator, rate_denominator) > 0", name="rate"),
    CheckConstraint("locked_side IN ('SENDING', 'RECEIVING')", name="locked_side"),
    CheckConstraint("num_nonnulls(destination_account_id, uma_address) >= 1", name="destination"),
    CheckConstraint("num_nulls(peer_id, peer_platform_id) IN (0, 2)", name="peer"),
    comment="Quotes: payments that were promised at a price until a time.",
)
Index(
    "quotes_due_idx",
    quotes.c.expires_at,
    postgresql_where=quotes.c.status.in_(["PENDING", "PENDING_AUTHORIZATION"]),
)
Index("quotes_expired_idx", quotes.c.id, postgresql_where=quotes.c.status == "EXPIRED")
