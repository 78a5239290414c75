"""Periods of the books: who closed which days, with which exceptions, and the seals."""

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
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP

from cardledger.schema.tables.columns import metadata, text_column, timestamp

_NOW: Final = text("now()")
_LOGIN: Final = text("SESSION_USER")


def _done_at(name: str, comment: str) -> Column[object]:
    return Column(
        name, TIMESTAMP(timezone=True), nullable=False, server_default=_NOW, comment=comment
    )


def _done_by(name: str, comment: str) -> Column[str]:
    return Column(
        name,
        Text,
        nullable=False,
        server_default=_LOGIN,
        comment=f"{comment}; written by the database.",
    )


closing_kinds = Table(
    "closing_kinds",
    metadata,
    text_column("kind", "Its name, as `cardledger close --allow` takes it."),
    text_column("meaning", "What it is."),
    text_column("remedy", "How to clear it."),
    Column(
        "is_lasting",
        Boolean,
        nullable=False,
        comment="Whether it is checked again at the approval; what goes by itself is not.",
    ),
    PrimaryKeyConstraint("kind"),
    comment="What can be in the way of closing a period; written by migrations.",
)

closings = Table(
    "closings",
    metadata,
    Column(
        "id",
        Uuid,
        nullable=False,
        server_default=text("gen_random_uuid()"),
        comment="The closing or the reopening.",
    ),
    text_column("kind", "CLOSE or REOPEN."),
    Column(
        "closing_id",
        Uuid,
        ForeignKey("closings.id"),
        comment="The closing that a reopening takes back.",
    ),
    Column("first_day", Date, nullable=False, comment="First day of the period."),
    Column("last_day", Date, nullable=False, comment="Last day of the period."),
    Column(
        "state",
        Text,
        nullable=False,
        server_default=text("'PREPARED'"),
        comment="PREPARED, then REJECTED, or APPROVED (closed), SEALED, and REOPENED when it was"
        " taken back; of a reopening PREPARED, then REOPENED or REJECTED.",
    ),
    text_column("reason", "Why it is to be reopened.", nullable=True),
    _done_at("prepared_at", "When it was prepared."),
    _done_by("prepared_by", "The login that prepared it"),
    timestamp(
        "decided_at",
        "When it was approved or rejected. No entry that is recorded later is posted into a closed"
        " period.",
        nullable=True,
    ),
    text_column(
        "decided_by",
        "The login that approved or rejected it; written by the database.",
        nullable=True,
    ),
    text_column("decision_reason", "Why it was rejected.", nullable=True),
    PrimaryKeyConstraint("id"),
    CheckConstraint(
        "kind IN ('CLOSE', 'REOPEN') AND (kind = 'REOPEN') = (num_nulls(closing_id, reason) = 0)",
        name="kind",
    ),
    CheckConstraint("first_day <= last_day", name="period"),
    CheckConstraint(
        "state IN ('PREPARED', 'REJECTED', 'REOPENED')"
        " OR (kind = 'CLOSE' AND state IN ('APPROVED', 'SEALED'))",
        name="state",
    ),
    CheckConstraint(
        "num_nulls(decided_at, decided_by) = CASE state WHEN 'PREPARED' THEN 2 ELSE 0 END"
        " AND (state = 'REJECTED') = (decision_reason IS NOT NULL)",
        name="decision",
    ),
    CheckConstraint("decided_by <> prepared_by", name="two_people"),
    comment="Periods that were closed, and closings that were taken back: prepared by one person,"
    " decided by another. At most one is undecided.",
)
Index(
    "closings_prepared_key",
    closings.c.state,
    unique=True,
    postgresql_where=closings.c.state == text("'PREPARED'"),
)

closing_exceptions = Table(
    "closing_exceptions",
    metadata,
    Column("closing_id", Uuid, ForeignKey(closings.c.id), nullable=False, comment="The closing."),
    Column(
        "kind",
        Text,
        ForeignKey(closing_kinds.c.kind),
        nullable=False,
        comment="What was allowed to be in the way.",
    ),
    text_column("reason", "Why."),
    Column(
        "found",
        BigInteger,
        nullable=False,
        comment="How many of the kind were in the way when the closing was prepared.",
    ),
    _done_at("allowed_at", "When it was allowed."),
    _done_by("allowed_by", "The login that allowed it"),
    PrimaryKeyConstraint("closing_id", "kind"),
    comment="What was in the way of a closing and was allowed, append-only.",
)

seals = Table(
    "seals",
    metadata,
    Column("closing_id", Uuid, ForeignKey(closings.c.id), nullable=False, comment="The closing."),
    Column(
        "version",
        Integer,
        nullable=False,
        comment="Version of the columns that sha256 is made of (docs/finance.md).",
    ),
    text_column("sha256", "SHA-256 of the entries of the period, hexadecimal."),
    Column("entries", BigInteger, nullable=False, comment="Number of entries of the period."),
    Column(
        "late_entries",
        BigInteger,
        nullable=False,
        comment="Number of them that are late: of a period closed before.",
    ),
    Column(
        "trial_balance",
        JSONB,
        nullable=False,
        comment="Trial balance at the last day; amounts are text, minor units.",
    ),
    _done_at("sealed_at", "When it was sealed."),
    _done_by("sealed_by", "The login that sealed it"),
    PrimaryKeyConstraint("closing_id"),
    CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256"),
    comment="What a period was when it was closed, append-only; a seal stays when its period is"
    " reopened.",
)

book_verifications = Table(
    "book_verifications",
    metadata,
    Column(
        "days",
        JSONB,
        nullable=False,
        comment="Number of entries that were checked of each day from the first open day on, by"
        " day: entries are only added, so a day with as many has no other.",
    ),
    Column("id", BigInteger, Identity(always=True), nullable=False, comment="Ids rise with time."),
    _done_at("verified_at", "When it was recorded."),
    _done_by("verified_by", "The login that verified"),
    PrimaryKeyConstraint("id"),
    comment="Runs of `cardledger verify` after which the proof held, append-only.",
)

book_verification_runs = Table(
    "book_verification_runs",
    metadata,
    timestamp(
        "began_at", "When its database transaction began, of which it has seen the snapshot."
    ),
    Column(
        "differences",
        BigInteger,
        nullable=False,
        comment="Differences that it has found; 0: the books held.",
    ),
    Column(
        "id",
        BigInteger,
        Identity(always=True),
        nullable=False,
        comment="Tells runs apart that began at the same time.",
    ),
    _done_at("ended_at", "When it was recorded; written by the database."),
    _done_by("ended_by", "The login that verified"),
    PrimaryKeyConstraint("began_at", "id"),
    CheckConstraint("differences >= 0", name="differences"),
    comment="Runs of `cardledger verify`, append-only; that which began last says whether the"
    " books hold.",
)

book_beginnings = Table(
    "book_beginnings",
    metadata,
    Column("first_day", Date, nullable=False, comment="First day of the books."),
    Column("id", BigInteger, Identity(always=True), nullable=False, comment="Ids rise with time."),
    _done_at("begun_at", "When it was set."),
    _done_by("begun_by", "The login that set it"),
    PrimaryKeyConstraint("id"),
    comment="Days from which the books were opened, before any was closed, append-only; no row:"
    " from the month of the first entry on.",
)
