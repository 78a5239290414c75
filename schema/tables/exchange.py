"""Exchange rates: those of the installation, and those that platforms set in a sandbox."""

from decimal import Decimal

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP

from cardledger.schema.tables.columns import key, metadata, text_column
from cardledger.schema.tables.platforms import platforms

_RATE = "Exact: numerator / denominator major units of the destination for one of the source."


def _ratio() -> list[Column[Decimal]]:
    return [
        Column("numerator", Numeric(30, 0), nullable=False, comment=_RATE),
        Column("denominator", Numeric(30, 0), nullable=False, comment="Denominator of the rate."),
    ]


def _recorded_at() -> Column[object]:
    return Column(
        "recorded_at",
        TIMESTAMP(timezone=True),
        nullable=False,
        server_default=text("now()"),
        comment="When it was recorded, by the clock of PostgreSQL.",
    )


exchange_rates = Table(
    "exchange_rates",
    metadata,
    key("id", "The rate; ids rise with time."),
    text_column("source_currency", "One currency of the pair."),
    text_column("destination_currency", "The other one."),
    *_ratio(),
    text_column("source", "Where the rate is from, as the operator says."),
    _recorded_at(),
    Column(
        "recorded_by",
        Text,
        nullable=False,
        server_default=text("SESSION_USER"),
        comment="The login that recorded it; written by the database.",
    ),
    PrimaryKeyConstraint("id"),
    CheckConstraint("least(numerator, denominator) > 0", name="rate"),
    CheckConstraint("source_currency <> destination_currency", name="pair"),
    comment="Exchange rates of this installation, append-only: the newest of a pair, in either"
    " direction, is used by every platform.",
)
Index(
    "exchange_rates_pair_idx",
    exchange_rates.c.source_currency,
    exchange_rates.c.destination_currency,
    exchange_rates.c.id,
)

platform_exchange_rates = Table(
    "platform_exchange_rates",
    metadata,
    key("id", "The rate; ids rise with time."),
    Column("platform_id", ForeignKey(platforms.c.id), nullable=False, comment="The platform."),
    text_column("source_currency", "One currency of the pair."),
    text_column("destination_currency", "The other one."),
    *_ratio(),
    _recorded_at(),
    PrimaryKeyConstraint("id"),
    CheckConstraint("least(numerator, denominator) > 0", name="rate"),
    CheckConstraint("source_currency <> destination_currency", name="pair"),
    comment="Exchange rates that a platform has set for itself in a sandbox, append-only: they come"
    " before those of the installation.",
)
Index(
    "platform_exchange_rates_pair_idx",
    platform_exchange_rates.c.platform_id,
    platform_exchange_rates.c.source_currency,
    platform_exchange_rates.c.destination_currency,
    platform_exchange_rates.c.id,
)
