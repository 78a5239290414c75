"""What files of networks and statements of the bank book."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Date,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP

from cardledger.schema.tables.columns import key, metadata, text_column, timestamp

settlement_bookings = Table(
    "settlement_bookings",
    metadata,
    Column(
        "id",
        Uuid,
        nullable=False,
        server_default=text("gen_random_uuid()"),
        comment="The booking; `entries.subject_id` of its entry.",
    ),
    key("platform_id", "The platform."),
    key("file_id", "Of INTERCHANGE and NETWORK_FEES: the file (network_files.id).", nullable=True),
    key("statement_id", "Of BANK_LINE: the statement (bank_statements.id).", nullable=True),
    Column("amount", BigInteger, nullable=False, comment="Amount, minor units; always positive."),
    Column(
        "made_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=text("clock_timestamp()"),
        comment="When the file or statement was matched.",
    ),
    timestamp(
        "booked_at",
        "When the engine booked it: `entries.recorded_at` of its entry; null: not yet.",
        nullable=True,
    ),
    Column(
        "posted_for",
        Date,
        nullable=False,
        comment="The day on which it is posted, if that is open: settlement date of the file,"
        " booking date of the line.",
    ),
    Column("line", Integer, comment="Of BANK_LINE: the line."),
    text_column("kind", "INTERCHANGE, NETWORK_FEES or BANK_LINE."),
    text_column("currency", "Its currency."),
    text_column("from_kind", "Account of the chart that is debited."),
    text_column("to_kind", "Account of the chart that is credited."),
    text_column(
        "network",
        "Network of the file: its calendar decides on the day of recording.",
        nullable=True,
    ),
    PrimaryKeyConstraint("id"),
    CheckConstraint("amount > 0", name="amount"),
    CheckConstraint(
        "CASE kind WHEN 'BANK_LINE' THEN num_nulls(statement_id, line) = 0 AND"
        " num_nonnulls(file_id, network) = 0 ELSE num_nulls(file_id, network) = 0 AND"
        " num_nonnulls(statement_id, line) = 0 END",
        name="source",
    ),
    CheckConstraint(
        "(kind, least(from_kind, to_kind), greatest(from_kind, to_kind)) IN"
        " (('INTERCHANGE', 'INTERCHANGE', 'NETWORK_SETTLEMENT'),"
        " ('NETWORK_FEES', 'NETWORK_FEES', 'NETWORK_SETTLEMENT'),"
        " ('BANK_LINE', 'NETWORK_SETTLEMENT', 'SETTLEMENT_BANK'))",
        name="accounts",
    ),
    comment="What files of networks and statements of the bank book, each once; nothing is"
    " deleted.",
)
Index(
    "settlement_bookings_file_key",
    settlement_bookings.c.file_id,
    settlement_bookings.c.currency,
    settlement_bookings.c.kind,
    settlement_bookings.c.from_kind,
    unique=True,
    postgresql_where=settlement_bookings.c.file_id.isnot(None),
)
Index(
    "settlement_bookings_line_key",
    settlement_bookings.c.statement_id,
    settlement_bookings.c.line,
    unique=True,
    postgresql_where=settlement_bookings.c.statement_id.isnot(None),
)
Index(
    "settlement_bookings_due_idx",
    settlement_bookings.c.made_at,
    settlement_bookings.c.id,
    postgresql_where=settlement_bookings.c.booked_at.is_(None),
)
