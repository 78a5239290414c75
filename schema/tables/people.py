"""People, who are logins of PostgreSQL, and the corrections of the books that they decide on."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Index,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

from cardledger.schema.tables.columns import key, metadata, text_column, timestamp

person_changes = Table(
    "person_changes",
    metadata,
    text_column("name", "The person: a role of PostgreSQL."),
    Column("id", BigInteger, Identity(always=True), nullable=False, comment="Ids rise with time."),
    text_column("change", "ADDED or REMOVED."),
    Column(
        "may",
        ARRAY(Text),
        nullable=False,
        comment="What the person may do, or could do before: prepare, approve.",
    ),
    Column(
        "changed_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=text("now()"),
        comment="When it was changed, by the clock of PostgreSQL.",
    ),
    Column(
        "changed_by",
        Text,
        nullable=False,
        server_default=text("SESSION_USER"),
        comment="The login that changed it; written by the database.",
    ),
    PrimaryKeyConstraint("id"),
    CheckConstraint("change IN ('ADDED', 'REMOVED')", name="change"),
    comment="Who became a person with a login, and who ceased to be; append-only.",
)

_MOVABLE = (
    "('INTERCHANGE', 'NETWORK_FEES', 'NETWORK_SETTLEMENT', 'OPERATOR_LOSS', 'SETTLEMENT_BANK')"
)

adjustments = Table(
    "adjustments",
    metadata,
    Column("id", Uuid, primary_key=True, comment="The adjustment; `entries.subject_id` of a MOVE."),
    text_column("kind", "WRITE_OFF, MOVE or RESOLVE_SUSPENSE."),
    key("platform_id", "The platform."),
    text_column("currency", "Its currency."),
    Column(
        "amount",
        BigInteger,
        CheckConstraint("amount > 0", name="amount_positive"),
        nullable=False,
        comment="Amount, minor units; always positive.",
    ),
    text_column("from_kind", "Of a MOVE: account of the chart that is debited.", nullable=True),
    text_column("to_kind", "Of a MOVE: account of the chart that is credited.", nullable=True),
    key(
        "card_transaction_id",
        "Of a WRITE_OFF: the card transaction that owes the amount.",
        nullable=True,
    ),
    key("suspense_id", "Of a RESOLVE_SUSPENSE: the item of the suspense account.", nullable=True),
    text_column("reason", "Why, in the words of the person who prepared it."),
    Column(
        "state",
        Text,
        nullable=False,
        server_default=text("'PREPARED'"),
        comment="PREPARED; then REJECTED, or APPROVED; then BOOKED or REFUSED.",
    ),
    Column(
        "prepared_by",
        Text,
        nullable=False,
        server_default=text("SESSION_USER"),
        comment="The login that prepared it; written by the database.",
    ),
    Column(
        "prepared_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=text("now()"),
        comment="When it was prepared, by the clock of PostgreSQL.",
    ),
    text_column(
        "decided_by",
        "The login that approved or rejected it; written by the database.",
        nullable=True,
    ),
    timestamp("decided_at", "When it was approved or rejected.", nullable=True),
    timestamp(
        "booked_at",
        "When the engine booked it: `entries.recorded_at` of its entries.",
        nullable=True,
    ),
    text_column(
        "refusal",
        "Why it was not booked: what the person who rejected it wrote, or what the engine found.",
        nullable=True,
    ),
    key(
        "break_id",
        "Of a MOVE of SETTLEMENT_BANK: the break BANK_ONLY whose line it books (breaks.id); null:"
        " there was no statement of the bank yet, or it is a reversal.",
        nullable=True,
    ),
    key(
        "reverses_id",
        "Of a MOVE that is a reversal: the move of SETTLEMENT_BANK without a line that it takes"
        " back (adjustments.id).",
        nullable=True,
    ),
    CheckConstraint(
        "CASE kind WHEN 'MOVE' THEN num_nonnulls(card_transaction_id, suspense_id) = 0"
        f" AND from_kind <> to_kind AND from_kind IN {_MOVABLE} AND to_kind IN {_MOVABLE}"
        " AND num_nulls(from_kind, to_kind) = 0"
        " WHEN 'WRITE_OFF' THEN num_nonnulls(suspense_id, from_kind, to_kind) = 0"
        " AND card_transaction_id IS NOT NULL"
        " WHEN 'RESOLVE_SUSPENSE' THEN num_nonnulls(card_transaction_id, from_kind, to_kind) = 0"
        " AND suspense_id IS NOT NULL ELSE false END",
        name="target",
    ),
    CheckConstraint("length(btrim(reason)) > 0 AND length(reason) <= 1000", name="reason"),
    CheckConstraint(
        "state IN ('PREPARED', 'APPROVED', 'REJECTED', 'BOOKED', 'REFUSED')", name="state"
    ),
    CheckConstraint("decided_by <> prepared_by", name="two_people"),
    CheckConstraint(
        "num_nulls(decided_by, decided_at) = CASE state WHEN 'PREPARED' THEN 2 ELSE 0 END",
        name="decision",
    ),
    CheckConstraint("(state = 'BOOKED') = (booked_at IS NOT NULL)", name="booking"),
    CheckConstraint("(state IN ('REJECTED', 'REFUSED')) = (refusal IS NOT NULL)", name="refusal"),
    comment="Corrections of the books: a person prepares one, another approves or rejects it, the"
    " engine books it. States only go forward, and nothing is deleted.",
)
Index(
    "adjustments_approved_idx",
    adjustments.c.decided_at,
    adjustments.c.id,
    postgresql_where=adjustments.c.state == "APPROVED",
)
Index(
    "adjustments_break_idx",
    adjustments.c.break_id,
    postgresql_where=adjustments.c.break_id.is_not(None),
)
Index(
    "adjustments_reverses_key",
    adjustments.c.reverses_id,
    unique=True,
    postgresql_where=adjustments.c.reverses_id.is_not(None)
    & adjustments.c.state.not_in(["REJECTED", "REFUSED"]),
)
