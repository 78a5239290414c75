"""The rates of an installation as its operator loads and lists them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any, Final

from psycopg import AsyncConnection

from cardledger.ledger.exchange.rate_file import RateFile
from cardledger.ledger.storage.ids import new_id

_SHOWN_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRate:
    """A row of `exchange_rates`."""

    source_currency: str
    destination_currency: str
    numerator: int
    denominator: int
    source: str
    recorded_at: datetime
    recorded_by: str

    def decimal(self) -> Decimal:
        """Return the rate, to twelve significant digits."""
        context = Context(prec=_SHOWN_DIGITS)
        return context.divide(Decimal(self.numerator), Decimal(self.denominator))

    def as_dict(self) -> dict[str, Any]:
        """Return the rate as JSON has it: an exact ratio, and a decimal to read."""
        return {
            "sourceCurrency": self.source_currency,
            "destinationCurrency": self.destination_currency,
            "rate": str(self.decimal()),
            "numerator": self.numerator,
            "denominator": self.denominator,
            "source": self.source,
            "recordedAt": self.recorded_at.isoformat(),
            "recordedBy": self.recorded_by,
        }


_INSERT: Final = """
    INSERT INTO exchange_rates
        (id, source_currency, destination_currency, numerator, denominator, source)
    VALUES (%s, %s, %s, %s, %s, %s)
"""
_NEWEST: Final = """
    SELECT DISTINCT ON (source_currency, destination_currency)
        source_currency, destination_currency, numerator, denominator, source, recorded_at,
        recorded_by
    FROM exchange_rates ORDER BY source_currency, destination_currency, id DESC
"""


async def load(connection: AsyncConnection[Any], file: RateFile) -> int:
    """Record the rates of `file` for every platform; return how many."""
    rows = [
        (new_id(), file.base, currency, value.numerator, value.denominator, file.source)
        for currency, value in file.rates.items()
    ]
    async with connection.cursor() as cursor:
        await cursor.executemany(_INSERT, rows)
    return len(rows)


async def newest(connection: AsyncConnection[Any]) -> Sequence[StoredRate]:
    """Return the newest rate of each pair, by currencies."""
    cursor = await connection.execute(_NEWEST)
    return [
        StoredRate(
            source_currency=source_currency,
            destination_currency=destination_currency,
            numerator=int(numerator),
            denominator=int(denominator),
            source=source,
            recorded_at=recorded_at.astimezone(UTC),
            recorded_by=recorded_by,
        )
        async for (
            source_currency,
            destination_currency,
            numerator,
            denominator,
            source,
            recorded_at,
            recorded_by,
        ) in cursor
    ]
