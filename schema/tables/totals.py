"""Sums of entries, kept by workers behind the engine; every figure in them can be made again.

Source: docs/decisions/0066-totals.md
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Index,
    Numeric,
    PrimaryKeyConstraint,
    Table,
)

from cardledger.schema.tables.columns import key, metadata, text_column, timestamp

_DIGITS = 38  # Of a sum: amounts are of 64 bits.


def _sum(name: str, comment: str) -> Column[object]:
    return Column(name, Numeric(_DIGITS), nullable=False, comment=comment)


posting_totals = Table(
    "posting_totals",
    metadata,
    timestamp("recorded_until", "End of the span, inclusive (`entries.recorded_at`)."),
    timestamp("recorded_after", "Beginning of the span, exclusive: the end of the one before."),
    key("platform_id", "The platform."),
    text_column("currency", "Currency of the account."),
    text_column("kind", "Account of the chart; CUSTOMER: all accounts of customers together."),
    Column(
        "posted_on",
        Date,
        nullable=False,
        comment="The business day in whose books the entries count.",
    ),
    _sum("debits", "Sum of the entries that debit the account, minor units."),
    _sum("credits", "Sum of the entries that credit the account, minor units."),
    Column("entries", BigInteger, nullable=False, comment="Number of the entries."),
    PrimaryKeyConstraint("recorded_until", "platform_id", "currency", "kind", "posted_on"),
    CheckConstraint("recorded_after < recorded_until", name="span"),
    comment="Sums of the entries recorded in a span of time, by account of the chart and posting"
    " day, append-only. The spans follow each other from the first entry on.",
)
Index(
    "posting_totals_account_idx",
    posting_totals.c.platform_id,
    posting_totals.c.currency,
    posting_totals.c.kind,
    posting_totals.c.recorded_until,
)

account_totals = Table(
    "account_totals",
    metadata,
    key("account_id", "The account."),
    Column(
        "last_version",
        BigInteger,
        nullable=False,
        comment="Position of the last of the entries on the account (`entries.account_version`).",
    ),
    Column("first_version", BigInteger, nullable=False, comment="Position of the first."),
    Column(
        "posted_on",
        Date,
        nullable=False,
        comment="The business day in whose books the summed entries count.",
    ),
    timestamp("recorded_from", "When the first of the thousand was recorded."),
    timestamp("recorded_until", "When the last of the thousand was recorded."),
    _sum("debits", "Sum of the entries that debit the account, minor units."),
    _sum("credits", "Sum of the entries that credit the account, minor units."),
    PrimaryKeyConstraint("account_id", "last_version", "posted_on"),
    comment="Sums of a thousand entries that follow each other on an account of a customer, by"
    " posting day, append-only; no row: the account has fewer.",
)

posting_totals_progress = Table(
    "posting_totals_progress",
    metadata,
    Column("is_only", Boolean, primary_key=True, comment="True."),
    timestamp("recorded_until", "Entries recorded until then are in the totals."),
    timestamp(
        "settled_at",
        "A time from before the database transaction settled_by; null: none is noted.",
        nullable=True,
    ),
    Column(
        "settled_by",
        BigInteger,
        comment="Once all database transactions before it have ended, no entry can be recorded"
        " until settled_at any more.",
    ),
    CheckConstraint("is_only", name="is_only"),
    CheckConstraint("num_nulls(settled_at, settled_by) IN (0, 2)", name="settled"),
    comment="One row; the worker that locks it adds totals.",
)

trial_balances = Table(
    "trial_balances",
    metadata,
    key("platform_id", "The platform."),
    text_column("currency", "Currency of the account."),
    text_column("kind", "Account of the chart; CUSTOMER: all accounts of customers together."),
    _sum("debits", "Sum of the totals that debit the account, minor units."),
    _sum("credits", "Sum of the totals that credit the account, minor units."),
    Column("entries", BigInteger, nullable=False, comment="Number of the entries in these totals."),
    _sum("recent_debits", "The same of the entries that no totals have yet."),
    _sum("recent_credits", "The same of the entries that no totals have yet."),
    Column(
        "recent_entries",
        BigInteger,
        nullable=False,
        comment="Number of the entries without totals.",
    ),
    PrimaryKeyConstraint("platform_id", "currency", "kind"),
    comment="Trial balance as of the time in `trial_balance_progress`, kept by workers.",
)

trial_balance_progress = Table(
    "trial_balance_progress",
    metadata,
    Column("is_only", Boolean, primary_key=True, comment="True."),
    timestamp("totals_until", "Totals of entries recorded until then are added up."),
    timestamp("as_of", "What was committed by then is counted; null: nothing yet.", nullable=True),
    timestamp("computed_at", "When the trial balance was last computed.", nullable=True),
    CheckConstraint("is_only", name="is_only"),
    comment="One row; the worker that locks it computes the trial balance.",
)
