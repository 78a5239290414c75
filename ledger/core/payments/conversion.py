"""Conversions between currencies: rates, rounding and fees, in integers. Pure.

Here, and nowhere else, is stated what is rounded, and in whose favour:

* A rate is made from its price, minor units sent for one minor unit received, which is rounded up
  to twelve significant digits (`Rate.at`) and shown. The rate is applied as it is shown.
* The amount received is rounded down (`received_for`). What is left of a minor unit stays in the
  books of the platform.
* Where the amount received is locked, the amount converted is the least for which it is received
  (`sent_for`).
* The variable fee is rounded up as a whole. The service's part of it is rounded down, and the
  platform gets the rest, with what is over when the amount received is locked.

So no sum of conversions pays out more than has been paid in at the rate.
"""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final, Self

from cardledger.ledger.core.money import MAX_AMOUNT

PRICE_DIGITS: Final = 12
"""Significant digits of a price. A double holds fifteen, so readers of JSON see it exactly."""

PRICE_DECIMALS: Final = 18
"""Decimal places of a price, so that both parts of its rate fit a `bigint`."""

_LEAST_PRICE: Final = Decimal("1e-9")
_LARGEST_PRICE: Final = Decimal("1e9")

BASIS_POINTS: Final = 10_000
"""A fee of so many basis points is the whole amount."""


class LockedSide(StrEnum):
    """Which amount of a conversion its caller has chosen."""

    SENDING = "SENDING"
    RECEIVING = "RECEIVING"


class RateOutOfRangeError(ValueError):
    """A rate is not positive, or so small or large that an amount of it would mean nothing."""


class ConversionRangeError(ValueError):
    """An amount cannot be converted: nothing would be received, or a total is out of range."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Minor units received for one minor unit sent: `numerator` / `denominator`, exactly.

    Both fit a `bigint`; the numerator is a power of ten, so that the price is a decimal.
    """

    numerator: int
    denominator: int

    def __post_init__(self) -> None:
        parts = (self.numerator, self.denominator)
        if min(parts) <= 0 or max(parts) > MAX_AMOUNT:
            raise RateOutOfRangeError("A rate must be positive, and fit two 64-bit integers.")

    @classmethod
    def at(cls, price: Fraction) -> Self:
        """Return the rate at `price`: minor units sent for one received, which is rounded up.

        Raises: RateOutOfRangeError.
        """
        if price <= 0:
            raise RateOutOfRangeError("A rate must be positive.")
        context = Context(prec=PRICE_DIGITS, rounding=ROUND_CEILING)
        shown = context.divide(Decimal(price.numerator), Decimal(price.denominator))
        if not _LEAST_PRICE <= shown <= _LARGEST_PRICE:
            raise RateOutOfRangeError(
                f"A rate must be from {_LEAST_PRICE} to {_LARGEST_PRICE} minor units."
            )
        places = min(max(-int(shown.as_tuple().exponent), 0), PRICE_DECIMALS)
        sent = int(shown.scaleb(places).to_integral_value(rounding=ROUND_CEILING))
        return cls(numerator=10**places, denominator=sent)

    @property
    def price(self) -> Decimal:
        """Minor units sent for one minor unit received, exactly."""
        return Decimal(self.denominator) / Decimal(self.numerator)


SAME: Final = Rate(1, 1)
"""The rate between a currency and itself."""


def received_for(sent: int, rate: Rate) -> int:
    """Return how much is received for `sent`, rounded down."""
    return sent * rate.numerator // rate.denominator


def sent_for(received: int, rate: Rate) -> int:
    """Return the least amount to send for which `received` is received."""
    return -(-received * rate.denominator // rate.numerator)


def compared(amount: int, rate: Rate) -> int:
    """Return `amount`, of the currency sent, in the currency received, rounded up.

    For comparisons with limits: what is compared is never less than the amount.
    """
    return -(-amount * rate.numerator // rate.denominator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fees:
    """What the platform and the service charge, in the currency sent.

    Fixed parts in minor units, variable parts in basis points of what is sent without the fixed
    parts.
    """

    platform_fixed: int = 0
    platform_bps: int = 0
    service_fixed: int = 0
    service_bps: int = 0

    def __post_init__(self) -> None:
        parts = (self.platform_fixed, self.platform_bps, self.service_fixed, self.service_bps)
        assert min(parts) >= 0, "no fee is negative"

    @property
    def fixed(self) -> int:
        """The fixed parts together."""
        return self.platform_fixed + self.service_fixed

    @property
    def bps(self) -> int:
        """The variable parts together, in basis points."""
        return self.platform_bps + self.service_bps


NO_FEES: Final = Fees()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """The amounts of a conversion, in minor units: `sent` and the fees in the currency sent.

    The rate is applied to `sent` without the fees: SENDING `received` is `received_for` of it,
    RECEIVING it is `sent_for` of `received`.
    """

    locked_side: LockedSide
    sent: int
    received: int
    platform_fee: int
    service_fee: int
    rate: Rate

    @property
    def fee(self) -> int:
        """The fees together."""
        return self.platform_fee + self.service_fee


def converted(side: LockedSide, amount: int, rate: Rate, fees: Fees = NO_FEES) -> Conversion:
    """Return the conversion whose amount on `side` is `amount`; what is sent includes the fees.

    Raises: ConversionRangeError.
    """
    if side is LockedSide.SENDING:
        return _of_sending(amount, rate, fees)
    return _of_receiving(amount, rate, fees)


def _of_sending(sent: int, rate: Rate, fees: Fees) -> Conversion:
    _check(sent)
    platform_fee, service_fee = _fees(sent, fees)
    received = received_for(sent - platform_fee - service_fee, rate)
    if received <= 0:
        raise ConversionRangeError("Nothing would be received; send more.")
    _check(received)
    return Conversion(
        locked_side=LockedSide.SENDING,
        sent=sent,
        received=received,
        platform_fee=platform_fee,
        service_fee=service_fee,
        rate=rate,
    )


def _of_receiving(received: int, rate: Rate, fees: Fees) -> Conversion:
    _check(received)
    if fees.bps >= BASIS_POINTS:
        raise ConversionRangeError("The fees are the whole amount: nothing would be received.")
    needed = sent_for(received, rate)
    # The least base of which so much is left after the variable fee, which is rounded up.
    base = -(-needed * BASIS_POINTS // (BASIS_POINTS - fees.bps))
    sent = base + fees.fixed
    if sent > MAX_AMOUNT:
        raise ConversionRangeError("The amount to send would be out of range; receive less.")
    _, service_fee = _fees(sent, fees)
    return Conversion(
        locked_side=LockedSide.RECEIVING,
        sent=sent,
        received=received,
        platform_fee=sent - needed - service_fee,
        service_fee=service_fee,
        rate=rate,
    )


def _fees(sent: int, fees: Fees) -> tuple[int, int]:
    """Return the fees of the platform and of the service when `sent` is sent."""
    base = sent - fees.fixed
    if base <= 0:
        raise ConversionRangeError("The amount must be more than the fixed fees.")
    variable = -(-base * fees.bps // BASIS_POINTS)
    of_service = base * fees.service_bps // BASIS_POINTS
    return fees.platform_fixed + variable - of_service, fees.service_fixed + of_service


def _check(amount: int) -> None:
    if not 0 < amount <= MAX_AMOUNT:
        raise ConversionRangeError(f"An amount must be from 1 to {MAX_AMOUNT} minor units.")
