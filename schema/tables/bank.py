"""Statements of the bank: their lines, the days of networks that these pay, and proofs."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Date,
    Identity,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP

from cardledger.schema.tables.columns import key, metadata, text_column

_NOW: Final = text("now()")

bank_statements = Table(
    "bank_statements",
    metadata,
    Column(
        "id",
        Uuid,
        nullable=False,
        server_default=text("gen_random_uuid()"),
        comment="The statement.",
    ),
    key("platform_id", "The platform."),
    Column("opening", BigInteger, nullable=False, comment="Balance before its lines, minor units."),
    Column(
        "closing",
        BigInteger,
        nullable=False,
        comment="Balance after its lines, minor units: opening plus the lines.",
    ),
    Column("lines", BigInteger, comment="Number of lines; null only within the import."),
    Column(
        "imported_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=_NOW,
        comment="When it was imported.",
    ),
    Column("first_day", Date, nullable=False, comment="First booking date of its lines."),
    Column("last_day", Date, nullable=False, comment="Last booking date of its lines."),
    text_column("account", "The account at the bank."),
    text_column("statement_id", "Identifier of the statement of this account."),
    text_column("currency", "Currency of the account."),
    text_column(
        "digest",
        "SHA-256 of the parsed rows, hexadecimal; null only within the import.",
        nullable=True,
    ),
    Column(
        "imported_by",
        Text,
        nullable=False,
        server_default=text("SESSION_USER"),
        comment="The login that imported it; written by the database.",
    ),
    PrimaryKeyConstraint("id"),
    UniqueConstraint(
        "platform_id", "account", "statement_id", name="bank_statements_statement_key"
    ),
    CheckConstraint(
        "length(account) BETWEEN 1 AND 100 AND length(statement_id) BETWEEN 1 AND 200",
        name="texts",
    ),
    CheckConstraint("first_day <= last_day", name="days"),
    CheckConstraint("digest ~ '^[0-9a-f]{64}$'", name="digest"),
    CheckConstraint("num_nulls(lines, digest) IN (0, 2)", name="whole"),
    comment="Statements of the bank that were imported, each whole; nothing is deleted.",
)
Index(
    "bank_statements_day_idx",
    bank_statements.c.platform_id,
    bank_statements.c.currency,
    bank_statements.c.last_day,
)
Index(
    "bank_statements_digest_key",
    bank_statements.c.platform_id,
    bank_statements.c.currency,
    bank_statements.c.digest,
    unique=True,
)

bank_lines = Table(
    "bank_lines",
    metadata,
    key("statement_id", "The statement (bank_statements.id)."),
    Column(
        "amount",
        BigInteger,
        nullable=False,
        comment="Amount, minor units; positive: arrived at the bank.",
    ),
    Column("line", Integer, nullable=False, comment="Line of the file on which it begins."),
    Column("booking_date", Date, nullable=False, comment="Day on which the bank booked it."),
    Column("value_date", Date, comment="Day from which on it counts for interest."),
    text_column("bank_reference", "Reference of the bank.", nullable=True),
    text_column("description", "What the bank says about it.", nullable=True),
    PrimaryKeyConstraint("statement_id", "line"),
    CheckConstraint("amount <> 0", name="amount"),
    comment="Lines of statements of the bank, append-only.",
)

bank_payments = Table(
    "bank_payments",
    metadata,
    key("statement_id", "The statement (bank_statements.id)."),
    key("file_id", "The file of the network (network_files.id)."),
    Column(
        "amount",
        Numeric,
        nullable=False,
        comment="What of the line is for it, minor units; positive: arrived at the bank.",
    ),
    Column(
        "expected",
        Numeric,
        nullable=False,
        comment="What its file says should come for it, minor units.",
    ),
    key(
        "rest_of_statement_id",
        "Of REST: statement of the line that it completes.",
        nullable=True,
    ),
    Column(
        "matched_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=_NOW,
        comment="When it was matched.",
    ),
    Column("line", Integer, nullable=False, comment="The line."),
    Column("rest_of_line", Integer, comment="Of REST: the line that it completes."),
    text_column("currency", "Currency of both."),
    text_column(
        "rule",
        "REFERENCE: names the file; AMOUNT: sums agree; NETWORK: names the network; REST:"
        " completes another line.",
    ),
    PrimaryKeyConstraint("statement_id", "line", "file_id"),
    CheckConstraint("rule IN ('REFERENCE', 'AMOUNT', 'NETWORK', 'REST')", name="rule"),
    CheckConstraint(
        "num_nulls(rest_of_statement_id, rest_of_line) = CASE rule WHEN 'REST' THEN 0 ELSE 2 END",
        name="rest",
    ),
    comment="Which line of the bank pays which days of networks, append-only but for rule NETWORK,"
    " while its break is open: a file and currency is paid by one line, and by one more that brings"
    " the rest.",
)
Index(
    "bank_payments_file_key",
    bank_payments.c.file_id,
    bank_payments.c.currency,
    unique=True,
    postgresql_where=bank_payments.c.rule != "REST",
)
Index(
    "bank_payments_rest_key",
    bank_payments.c.rest_of_statement_id,
    bank_payments.c.rest_of_line,
    unique=True,
    postgresql_where=bank_payments.c.rule == "REST",
)

statement_proofs = Table(
    "statement_proofs",
    metadata,
    key("statement_id", "The statement (bank_statements.id)."),
    Column(
        "ledger",
        Numeric,
        nullable=False,
        comment="What the files of networks say should come for the days that its lines pay, and"
        " that it should have paid; minor units.",
    ),
    Column(
        "difference",
        Numeric,
        nullable=False,
        comment="Sum of the differences of all breaks of the statement.",
    ),
    Column("statement", Numeric, nullable=False, comment="Closing less opening balance."),
    Column(
        "proved_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=_NOW,
        comment="When it was computed.",
    ),
    Column("id", BigInteger, Identity(always=True), nullable=False, comment="Ids rise with time."),
    PrimaryKeyConstraint("id"),
    CheckConstraint("ledger + difference = statement", name="proof"),
    comment="That what was expected at the bank and all differences add up to the statement,"
    " append-only: a row whenever it changed.",
)
Index("statement_proofs_statement_idx", statement_proofs.c.statement_id, statement_proofs.c.id)
