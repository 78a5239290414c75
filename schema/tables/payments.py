"""Transfers and payments, and what has happened to each payment."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSON

from cardledger.schema.tables.columns import key, metadata, text_column, timestamp

transfers = Table(
    "transfers",
    metadata,
    key("id", "The transfer."),
    key("customer_id", "Its owner: a customer, or a platform by its own id."),
    key("platform_id", "Platform of the owner."),
    key(
        "source_account_id",
        "Debit account; external of IN; null: the payment arrives from outside.",
        nullable=True,
    ),
    key(
        "destination_account_id",
        "Credit account; external or of another owner of OUT; null: a UMA address outside.",
        nullable=True,
    ),
    Column(
        "amount",
        BigInteger,
        CheckConstraint("amount > 0", name="amount_positive"),
        nullable=False,
        comment="All that the source pays, minor units; always positive.",
    ),
    text_column("currency", "Currency of the amount."),
    text_column(
        "status",
        "PENDING, PROCESSING, COMPLETED, FAILED, EXPIRED or REJECTED; only a payment that is"
        " returned goes from COMPLETED to FAILED.",
    ),
    text_column("failure_reason", "Failure code; null unless FAILED.", nullable=True),
    key("agent_id", "The agent that requested it; null: not requested by an agent.", nullable=True),
    text_column("remittance_information", "Remittance information of the sender.", nullable=True),
    text_column("purpose_of_payment", "Purpose code.", nullable=True),
    timestamp("created_at", "Time of the request."),
    timestamp("settled_at", "When the money moved; null unless COMPLETED.", nullable=True),
    timestamp("updated_at", "When its status last changed."),
    Column(
        "kind",
        Text,
        nullable=False,
        server_default=text("'INTERNAL'::text"),
        comment="INTERNAL or EXCHANGE: between two accounts of the owner in one or two currencies;"
        " OUT: to another owner or outside; IN: pulled from an external account; RECEIVED: from"
        " another owner or outside; FEE: of a payment, for the platform.",
    ),
    Column(
        "sequence",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="Number of its events (`transfer_events`); an INTERNAL transfer has none.",
    ),
    timestamp(
        "requested_at",
        "When its message was sent to the engine; null: not yet, or it is INTERNAL.",
        nullable=True,
    ),
    text_column(
        "account_ending",
        "End of the identifier of the external account, at most four characters.",
        nullable=True,
    ),
    key(
        "peer_id",
        "Owner on the other side in this installation: a customer, or a platform by its id.",
        nullable=True,
    ),
    key("peer_platform_id", "Platform of that owner.", nullable=True),
    key("origin_id", "The payment of the other owner that caused it.", nullable=True),
    text_column("payment_rail", "Payment rail; null: none was chosen.", nullable=True),
    text_column("rail_selection", "AUTO or MANUAL; null: there is no rail.", nullable=True),
    Column(
        "fee_amount",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="Part of the amount that is the fee of the platform, minor units.",
    ),
    Column(
        "received_amount",
        BigInteger,
        comment="What arrives, minor units of `received_currency`; null: the amount less the fee.",
    ),
    text_column(
        "received_currency", "Currency that arrives; null: it is not converted.", nullable=True
    ),
    Column(
        "rate_numerator",
        BigInteger,
        comment="Minor units that are received for `rate_denominator` that are sent.",
    ),
    Column("rate_denominator", BigInteger, comment="Denominator of the rate."),
    text_column(
        "locked_side",
        "SENDING or RECEIVING: the amount that was chosen; the other one is computed by the rate.",
        nullable=True,
    ),
    key("quote_id", "The quote; null: none.", nullable=True),
    text_column("description", "Description by the sender.", nullable=True),
    text_column("uma_address", "UMA address of the other side.", nullable=True),
    text_column("own_uma_address", "UMA address of the owner.", nullable=True),
    Column(
        "requested_fields", JSON, comment="Names of the receiver's fields that the sender asks for."
    ),
    text_column("rejection_reason", "Why the platform rejected it, in its words.", nullable=True),
    Column("counterparty_information", JSON, comment="What is known of the other side; an object."),
    text_column("external_reference", "Reference at the rail, or at the sender.", nullable=True),
    Column(
        "is_funded",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="Whether the amount arrives from outside when it is debited.",
    ),
    Column(
        "needs_approval",
        Boolean,
        nullable=False,
        server_default=text("false"),
        comment="Whether the platform has to approve a payment that arrives.",
    ),
    timestamp("expected_settlement_at", "When the rail is expected to settle.", nullable=True),
    timestamp("due_at", "When the next step is due; null: none is due by itself.", nullable=True),
    text_column("refund_reference", "Reference of the refund; null: none.", nullable=True),
    text_column("refund_status", "PENDING, COMPLETED or FAILED; null: no refund.", nullable=True),
    timestamp("refund_initiated_at", "When the refund began.", nullable=True),
    timestamp("refund_settled_at", "When the refund was booked.", nullable=True),
    text_column(
        "refund_reason", "TRANSACTION_FAILED, USER_CANCELLATION or TIMEOUT.", nullable=True
    ),
    timestamp("receipt_confirmed_at", "When the platform confirmed the delivery.", nullable=True),
    Column(
        "mac",
        LargeBinary,
        comment="MAC of its terms, which are all columns that never change, by the process that"
        " requested it; null: it has arrived, or was requested by a release before schema 0147.",
    ),
    PrimaryKeyConstraint("id", "customer_id"),
    CheckConstraint(
        "status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'EXPIRED', 'REJECTED')",
        name="status",
    ),
    CheckConstraint("(status = 'FAILED') = (failure_reason IS NOT NULL)", name="failure_reason"),
    CheckConstraint("(status = 'COMPLETED') = (settled_at IS NOT NULL)", name="settled_at"),
    CheckConstraint("source_account_id <> destination_account_id", name="two_accounts"),
    CheckConstraint(
        "CASE kind WHEN 'INTERNAL' THEN num_nulls(source_account_id, destination_account_id,"
        " received_amount, received_currency) = 2 AND fee_amount = 0 AND sequence = 0"
        " WHEN 'EXCHANGE' THEN num_nulls(source_account_id, destination_account_id,"
        " received_currency) = 0"
        " WHEN 'OUT' THEN source_account_id IS NOT NULL"
        " WHEN 'IN' THEN num_nulls(source_account_id, destination_account_id) = 0"
        " WHEN 'RECEIVED' THEN destination_account_id IS NOT NULL"
        " WHEN 'FEE' THEN num_nulls(destination_account_id, origin_id) = 0 ELSE false END",
        name="kind",
    ),
    CheckConstraint(
        "num_nulls(received_amount, received_currency, rate_numerator, rate_denominator,"
        " locked_side) IN (0, 5) AND received_amount > 0 IS NOT FALSE"
        " AND received_currency <> currency IS NOT FALSE"
        " AND least(rate_numerator, rate_denominator) > 0 IS NOT FALSE"
        " AND locked_side IN ('SENDING', 'RECEIVING') IS NOT FALSE",
        name="conversion",
    ),
    CheckConstraint("fee_amount >= 0 AND fee_amount < amount", name="fee"),
    CheckConstraint("num_nulls(peer_id, peer_platform_id) IN (0, 2)", name="peer"),
    CheckConstraint(
        "num_nulls(refund_reference, refund_status, refund_initiated_at, refund_reason) IN (0, 4)"
        " AND refund_status IN ('PENDING', 'COMPLETED', 'FAILED') IS NOT FALSE"
        " AND ((refund_status = 'COMPLETED') IS TRUE) = (refund_settled_at IS NOT NULL)",
        name="refund",
    ),
    postgresql_with={"fillfactor": "80"},
    comment="Transfers between accounts, and payments to and from the outside; the API requests"
    " them, batches of the engine carry them out.",
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
Index(
    "transfers_due_idx",
    transfers.c.due_at,
    transfers.c.id,
    postgresql_where=transfers.c.due_at.isnot(None),
)

Index(
    "transfers_failed_refund_idx",
    transfers.c.id,
    postgresql_where=transfers.c.refund_status == "FAILED",
)

# For lists by an account.
Index(
    "transfers_source_account_id_idx",
    transfers.c.platform_id,
    transfers.c.source_account_id,
    transfers.c.id,
)
Index(
    "transfers_destination_account_id_idx",
    transfers.c.platform_id,
    transfers.c.destination_account_id,
    transfers.c.id,
)
Index(
    "transfers_approval_idx",
    transfers.c.created_at,
    postgresql_where=transfers.c.needs_approval & (transfers.c.status == "PENDING"),
)

transfer_events = Table(
    "transfer_events",
    metadata,
    key("transfer_id", "The payment (`transfers.id`)."),
    Column(
        "sequence", Integer, nullable=False, comment="Position within the payment: 1, 2, 3, ..."
    ),
    key("customer_id", "Its owner."),
    text_column(
        "kind",
        "DEBITED, SUBMITTED, COMPLETED, FAILED, REJECTED, RETURNED, REFUNDED, REFUND_FAILED,"
        " ARRIVED, CREDITED or EXCHANGED.",
    ),
    text_column("reason", "Failure code.", nullable=True),
    key("message_id", "The message that caused the event (`outcomes.message_id`)."),
    timestamp("occurred_at", "When it happened."),
    timestamp("recorded_at", "When the ledger recorded it."),
    PrimaryKeyConstraint("transfer_id", "sequence", "customer_id"),
    CheckConstraint("sequence > 0", name="sequence"),
    comment="Events of payments, append-only; their entries have the same sequence.",
)
