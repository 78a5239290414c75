"""Settlement files of networks: lines, the events that they are, and what differs."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKey,
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
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP

from cardledger.schema.tables.columns import metadata

_NOW: Final = text("now()")
_LOGIN: Final = text("SESSION_USER")

network_files = Table(
    "network_files",
    metadata,
    Column(
        "id", Uuid, nullable=False, server_default=text("gen_random_uuid()"), comment="The file."
    ),
    Column("platform_id", Uuid, nullable=False, comment="The platform."),
    Column("network", Text, nullable=False, comment="The network."),
    Column("file_id", Text, nullable=False, comment="Identifier of the file at the network."),
    Column(
        "settlement_date",
        Date,
        nullable=False,
        comment="Business date of the network on which it settles the lines.",
    ),
    Column("cycle", Text, comment="Settlement cycle within that date; null: the whole day."),
    Column("lines", BigInteger, comment="Number of lines; null only within the import."),
    Column(
        "digest",
        Text,
        comment="SHA-256 of the parsed rows, hexadecimal; null only within the import.",
    ),
    Column(
        "imported_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=_NOW,
        comment="When it was imported.",
    ),
    Column(
        "imported_by",
        Text,
        nullable=False,
        server_default=_LOGIN,
        comment="The login that imported it; written by the database.",
    ),
    Column(
        "books",
        Boolean,
        nullable=False,
        server_default=text("true"),
        comment="Whether its interchange and fees are booked: false of files that an earlier"
        " release imported.",
    ),
    PrimaryKeyConstraint("id"),
    UniqueConstraint("platform_id", "network", "file_id", name="network_files_file_key"),
    CheckConstraint("length(file_id) BETWEEN 1 AND 200", name="file_id"),
    CheckConstraint("length(cycle) BETWEEN 1 AND 100", name="cycle"),
    CheckConstraint("digest ~ '^[0-9a-f]{64}$'", name="digest"),
    CheckConstraint("num_nulls(lines, digest) IN (0, 2)", name="whole"),
    comment="Settlement files of networks that were imported, each whole; nothing is deleted.",
)
Index("network_files_day_idx", network_files.c.settlement_date, network_files.c.network)

network_file_totals = Table(
    "network_file_totals",
    metadata,
    Column(
        "file_id",
        Uuid,
        ForeignKey(network_files.c.id),
        nullable=False,
        comment="The file (network_files.id).",
    ),
    Column("currency", Text, nullable=False, comment="The currency."),
    Column("lines", BigInteger, nullable=False, comment="Number of lines in it."),
    Column(
        "amount",
        Numeric,
        nullable=False,
        comment="Sum of their amounts, minor units; positive: due to the network.",
    ),
    Column(
        "interchange",
        Numeric,
        nullable=False,
        comment="Sum of their interchange, units of the currency; positive: earned.",
    ),
    PrimaryKeyConstraint("file_id", "currency"),
    comment="Control totals of files, which their lines add up to, append-only.",
)

network_lines = Table(
    "network_lines",
    metadata,
    Column("file_id", Uuid, nullable=False, comment="The file (network_files.id)."),
    Column("line", Integer, nullable=False, comment="Line of the file on which it begins."),
    Column("amount", BigInteger, nullable=False, comment="Amount, minor units; always positive."),
    Column(
        "type",
        Text,
        nullable=False,
        comment="PRESENTMENT, PRESENTMENT_REVERSAL, CREDIT, CREDIT_REVERSAL, FEE or FEE_REVERSAL.",
    ),
    Column("currency", Text, nullable=False, comment="Billing currency."),
    Column(
        "reference", Text, comment="Reference of the network event, or acquirer reference number."
    ),
    Column("network_reference", Text, comment="Identifier of the transaction at the network."),
    Column("token", Text, comment="Issuer transaction token."),
    Column("card_id", Uuid, comment="The card."),
    Column(
        "merchant_amount",
        BigInteger,
        comment="Amount in the currency of the merchant, minor units.",
    ),
    Column("merchant_currency", Text, comment="Currency of the merchant."),
    Column(
        "interchange",
        Numeric(20, 6),
        comment="Interchange, units of the currency; positive: earned.",
    ),
    Column("transaction_date", Date, comment="Date of the purchase."),
    Column("merchant", Text, comment="Name of the merchant."),
    Column("mcc", Text, comment="Merchant category code, ISO 18245."),
    PrimaryKeyConstraint("file_id", "line"),
    CheckConstraint("amount > 0", name="amount"),
    CheckConstraint(
        "type IN ('PRESENTMENT', 'PRESENTMENT_REVERSAL', 'CREDIT', 'CREDIT_REVERSAL',"
        " 'FEE', 'FEE_REVERSAL')",
        name="type",
    ),
    comment="Lines of settlement files, append-only.",
)
Index(
    "network_lines_fees_idx",
    network_lines.c.reference,
    network_lines.c.file_id,
    postgresql_where=text("type IN ('FEE', 'FEE_REVERSAL') AND reference IS NOT NULL"),
)

line_matches = Table(
    "line_matches",
    metadata,
    Column("file_id", Uuid, nullable=False, comment="The file (network_files.id)."),
    Column("card_transaction_id", Uuid, nullable=False, comment="The card transaction."),
    Column("customer_id", Uuid, nullable=False, comment="The cardholder."),
    Column("line", Integer, nullable=False, comment="The line."),
    Column(
        "sequence",
        Integer,
        nullable=False,
        comment="The event of the card transaction; its entries have the same.",
    ),
    Column(
        "rule", Text, nullable=False, comment="REFERENCE, TOKEN or CARD: by what it was matched."
    ),
    Column(
        "matched_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=_NOW,
        comment="When it was matched.",
    ),
    PrimaryKeyConstraint("file_id", "line"),
    UniqueConstraint("card_transaction_id", "sequence", name="line_matches_event_key"),
    CheckConstraint("rule IN ('REFERENCE', 'TOKEN', 'CARD')", name="rule"),
    comment="Which line of a settlement file is which event, one to one, append-only.",
)

breaks = Table(
    "breaks",
    metadata,
    Column(
        "id", Uuid, nullable=False, server_default=text("gen_random_uuid()"), comment="The break."
    ),
    Column(
        "file_id",
        Uuid,
        ForeignKey(network_files.c.id),
        comment="The file (network_files.id); null: of a statement.",
    ),
    Column(
        "card_transaction_id",
        Uuid,
        comment="The card transaction of the event; null: there is none.",
    ),
    Column("customer_id", Uuid, comment="The cardholder of the event."),
    Column(
        "line",
        Integer,
        comment="The line of the file or statement; null: IN_LEDGER_ONLY or NOT_PAID.",
    ),
    Column("sequence", Integer, comment="The event of the card transaction."),
    Column(
        "kind",
        Text,
        nullable=False,
        comment="AMOUNT_DIFFERS, CURRENCY_DIFFERS, TYPE_DIFFERS, DUPLICATE_LINE,"
        " IN_FILE_ONLY, IN_LEDGER_ONLY, TIMING or AMBIGUOUS; of a statement BANK_DIFFERS,"
        " BANK_ONLY or NOT_PAID.",
    ),
    Column(
        "cause",
        Text,
        comment="Of IN_FILE_ONLY: NO_EVENT, PARKED, IGNORED, or REJECTED: and the reason.",
    ),
    Column(
        "currency",
        Text,
        nullable=False,
        comment="Currency of the line, or of the event without a line.",
    ),
    Column(
        "file_amount",
        BigInteger,
        comment="Amount of the line, minor units; positive: due to the network, of a statement"
        " arrived at the bank.",
    ),
    Column(
        "ledger_amount",
        BigInteger,
        comment="Amount of the event, minor units of its currency, of a statement what was"
        " expected; signed as file_amount.",
    ),
    Column("ledger_currency", Text, comment="Of CURRENCY_DIFFERS: the currency of the event."),
    Column(
        "difference",
        Numeric,
        nullable=False,
        comment="What the file has more than the ledger, minor units of the currency; 0"
        " once it is made up for.",
    ),
    Column(
        "ledger_difference",
        Numeric,
        comment="Of CURRENCY_DIFFERS: the same in the currency of the event.",
    ),
    Column(
        "candidates",
        JSONB,
        comment="Of AMBIGUOUS and BANK_ONLY: events or files that the line may be, up to 10.",
    ),
    Column(
        "state",
        Text,
        nullable=False,
        comment="open, investigating, resolved, written_off; explained: by a later event or file.",
    ),
    Column("owner", Text, comment="The person who works on it."),
    Column(
        "opened_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=_NOW,
        comment="When it was found.",
    ),
    Column(
        "closed_at",
        TIMESTAMP(timezone=True),
        comment="When it was resolved, written off or explained.",
    ),
    Column("closed_by", Text, comment="The login that did so; written by the database."),
    Column(
        "statement_id",
        Uuid,
        comment="The statement of the bank (bank_statements.id); null: of a file.",
    ),
    Column(
        "paid_file_id",
        Uuid,
        comment="Of BANK_DIFFERS and NOT_PAID: the file of the network that is paid, or not;"
        " of several the last.",
    ),
    PrimaryKeyConstraint("id"),
    CheckConstraint(
        "CASE WHEN statement_id IS NULL THEN kind IN ('AMOUNT_DIFFERS', 'CURRENCY_DIFFERS',"
        " 'TYPE_DIFFERS', 'DUPLICATE_LINE', 'IN_FILE_ONLY', 'IN_LEDGER_ONLY', 'TIMING',"
        " 'AMBIGUOUS') AND file_id IS NOT NULL ELSE kind IN ('BANK_DIFFERS', 'BANK_ONLY',"
        " 'NOT_PAID') AND file_id IS NULL END",
        name="kind",
    ),
    CheckConstraint(
        "(kind IN ('IN_LEDGER_ONLY', 'NOT_PAID')) = (line IS NULL) AND"
        " num_nulls(card_transaction_id, sequence, customer_id) IN (0, 3) AND"
        " (paid_file_id IS NOT NULL) = (kind IN ('BANK_DIFFERS', 'NOT_PAID'))",
        name="about",
    ),
    CheckConstraint("(kind = 'IN_FILE_ONLY') = (cause IS NOT NULL)", name="cause"),
    CheckConstraint(
        "(kind = 'CURRENCY_DIFFERS') = (ledger_currency IS NOT NULL) AND"
        " num_nulls(ledger_currency, ledger_difference) IN (0, 2)",
        name="currencies",
    ),
    CheckConstraint(
        "state IN ('open', 'investigating', 'resolved', 'written_off', 'explained')", name="state"
    ),
    CheckConstraint(
        "num_nulls(closed_at, closed_by) = CASE WHEN state IN ('open', 'investigating')"
        " THEN 2 ELSE 0 END",
        name="closed",
    ),
    CheckConstraint(
        "state NOT IN ('resolved', 'written_off') OR closed_by IS DISTINCT FROM owner",
        name="two_people",
    ),
    comment="What a settlement file or a statement of the bank and the ledger differ by; nothing is"
    " deleted.",
)
_IS_OPEN: Final = text("state IN ('open', 'investigating')")
Index(
    "breaks_line_key",
    breaks.c.file_id,
    breaks.c.line,
    breaks.c.kind,
    unique=True,
    postgresql_where=breaks.c.line.isnot(None),
)
Index(
    "breaks_event_key",
    breaks.c.file_id,
    breaks.c.card_transaction_id,
    breaks.c.sequence,
    unique=True,
    postgresql_where=breaks.c.line.is_(None),
)
Index(
    "breaks_statement_line_key",
    breaks.c.statement_id,
    breaks.c.line,
    breaks.c.kind,
    unique=True,
    postgresql_where=text("statement_id IS NOT NULL AND line IS NOT NULL"),
)
Index(
    "breaks_statement_idx",
    breaks.c.statement_id,
    postgresql_where=text("statement_id IS NOT NULL"),
)
Index(
    "breaks_not_paid_key",
    breaks.c.paid_file_id,
    breaks.c.currency,
    unique=True,
    postgresql_where=breaks.c.kind == "NOT_PAID",
)
Index("breaks_open_idx", breaks.c.file_id, postgresql_where=_IS_OPEN)
Index(
    "breaks_event_idx",
    breaks.c.card_transaction_id,
    breaks.c.sequence,
    postgresql_where=breaks.c.card_transaction_id.isnot(None),
)

break_history = Table(
    "break_history",
    metadata,
    Column("break_id", Uuid, ForeignKey(breaks.c.id), nullable=False, comment="The break."),
    Column(
        "action",
        Text,
        nullable=False,
        comment="ASSIGNED, NOTED, RESOLVED, WRITTEN_OFF or EXPLAINED.",
    ),
    Column("note", Text, comment="What the person wrote; of EXPLAINED what explains it."),
    Column("owner", Text, comment="Of ASSIGNED: to whom."),
    Column("difference", Numeric, comment="Of EXPLAINED: the difference before."),
    Column(
        "done_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=text("clock_timestamp()"),
        comment="When it was done.",
    ),
    Column(
        "done_by",
        Text,
        nullable=False,
        server_default=_LOGIN,
        comment="The login that did it; written by the database.",
    ),
    Column("id", BigInteger, Identity(always=True), nullable=False, comment="Ids rise with time."),
    PrimaryKeyConstraint("id"),
    CheckConstraint(
        "action IN ('ASSIGNED', 'NOTED', 'RESOLVED', 'WRITTEN_OFF', 'EXPLAINED')", name="action"
    ),
    CheckConstraint("length(note) BETWEEN 1 AND 2000", name="note"),
    comment="What was done about breaks, append-only.",
)
Index("break_history_break_idx", break_history.c.break_id, break_history.c.id)

file_proofs = Table(
    "file_proofs",
    metadata,
    Column(
        "file_id",
        Uuid,
        ForeignKey(network_files.c.id),
        nullable=False,
        comment="The file (network_files.id).",
    ),
    Column("currency", Text, nullable=False, comment="The currency."),
    Column(
        "ledger",
        Numeric,
        nullable=False,
        comment="What the ledger has of the network, day and cycle of the file, minor"
        " units; positive: due to the network.",
    ),
    Column(
        "difference",
        Numeric,
        nullable=False,
        comment="Sum of the differences of all breaks of the file.",
    ),
    Column("file", Numeric, nullable=False, comment="Control total of the file."),
    Column(
        "proved_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=_NOW,
        comment="When it was computed.",
    ),
    Column("id", BigInteger, Identity(always=True), nullable=False, comment="Ids rise with time."),
    PrimaryKeyConstraint("id"),
    CheckConstraint("ledger + difference = file", name="proof"),
    comment="That the ledger and all differences add up to the file, append-only: one row"
    " for each currency whenever it was matched.",
)
Index("file_proofs_file_idx", file_proofs.c.file_id, file_proofs.c.currency, file_proofs.c.id)

file_refusals = Table(
    "file_refusals",
    metadata,
    Column("code", Text, nullable=False, comment="Why."),
    Column("line", Integer, comment="The line of the file."),
    Column("column_name", Text, comment="The column."),
    Column("message", Text, nullable=False, comment="What is wrong."),
    Column(
        "refused_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=_NOW,
        comment="When it was refused.",
    ),
    Column(
        "refused_by",
        Text,
        nullable=False,
        server_default=_LOGIN,
        comment="The login that ran the command; written by the database.",
    ),
    Column("id", BigInteger, Identity(always=True), nullable=False, comment="Ids rise with time."),
    PrimaryKeyConstraint("id"),
    CheckConstraint(
        "length(code) <= 40 AND length(column_name) <= 40 AND length(message) <= 1000", name="texts"
    ),
    comment="Files that were refused, append-only; nothing of them is kept.",
)
