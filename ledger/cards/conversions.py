"""What the network of a sandbox bills for a purchase in another currency than the card's.

Exact: an amount is rounded once, half up, and a rate that is computed has twelve decimal places.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.ledger.exchange import rates
from cardledger.ledger.exchange.rates import Pair, Pricing, in_minor_units
from cardledger.schema.ids import Id
from cardledger.schema.wire.conversion import RATE_DIGITS, canonical_rate

_EXACT: Final = Context(prec=60)
_PLACES: Final = Decimal(1).scaleb(-RATE_DIGITS)
_TOO_LARGE: Final = 10**RATE_DIGITS


class NotConvertibleError(ValueError):
    """An amount cannot be converted; the text says why, without a subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """What is billed for a merchant's amount, in minor units, at `rate` (major units for one)."""

    amount: int
    merchant_amount: int
    merchant_currency: str
    rate: str

    def wire(self) -> dict[str, Any]:
        """Return the conversion of a network event."""
        merchant_amount = {"amount": self.merchant_amount, "currency": self.merchant_currency}
        return {"merchantAmount": merchant_amount, "rate": self.rate}


def stated(amount: int, currency: str, *, of: int, merchant_currency: str) -> Billed:
    """Return the conversion of a merchant's amount `of` to `amount`, both in minor units > 0.

    Raises: NotConvertibleError when no rate within twelve digits gives it.
    """
    ratio = Fraction(amount, of) * in_minor_units(Fraction(1), merchant_currency, currency)
    return Billed(
        amount=amount,
        merchant_amount=of,
        merchant_currency=merchant_currency,
        rate=_rate_text(ratio),
    )


def at_rate(amount: int, merchant_currency: str, value: Fraction, currency: str) -> Billed:
    """Return what is billed for a merchant's `amount` at `value`, the rate in major units.

    Raises: NotConvertibleError when that is nothing, or more than an amount can be.
    """
    rate = _rate_text(value)
    minor = Fraction(rate) / in_minor_units(Fraction(1), merchant_currency, currency)
    billed = int(amount * minor + Fraction(1, 2))
    if not 0 < billed <= MAX_AMOUNT:
        least = "at least 1 minor unit" if not billed else f"at most {MAX_AMOUNT} minor units"
        message = f"must be {least} of {currency} at the rate {rate}"
        raise NotConvertibleError(message)
    return Billed(
        amount=billed, merchant_amount=amount, merchant_currency=merchant_currency, rate=rate
    )


async def by_table(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    amount: int,
    pair: Pair,
    platform_id: Id,
    pricing: Pricing,
    at: datetime,
) -> Billed | None:
    """Return what is billed at the market rate of the platform; None: there is no rate.

    Raises: NotConvertibleError as `at_rate`.
    """
    known = await rates.read(connection, [pair], platform_id=platform_id, pricing=pricing, at=at)
    found = known.market(*pair)
    return None if found is None else at_rate(amount, pair.source, found.value, pair.destination)


def _rate_text(value: Fraction) -> str:
    """Return a rate > 0 as events have it, rounded to twelve decimal places."""
    if value >= _TOO_LARGE:
        raise NotConvertibleError(f"must give a rate below {_TOO_LARGE}")
    exact = _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
    rounded = exact.quantize(_PLACES, rounding=ROUND_HALF_UP, context=_EXACT)
    if not rounded:
        raise NotConvertibleError(f"must give a rate of at least {_PLACES}")
    return canonical_rate(f"{rounded:f}")
