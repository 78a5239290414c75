"""Conversions: what the network says about a purchase in another currency than the card's."""

from decimal import Decimal
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter

from cardledger.schema.wire.common import CURRENCIES, Amount, Currency, Request

RATE_DIGITS: Final = 12
"""Digits of a rate before and after the decimal point, at most."""

_RATE: Final = rf"^[0-9]{{1,{RATE_DIGITS}}}(\.[0-9]{{1,{RATE_DIGITS}}})?$"


def canonical_rate(rate: str) -> str:
    """Return `rate`, a decimal, without zeros that say nothing.

    Raises: ValueError for 0.
    """
    if not Decimal(rate):
        raise ValueError("must be greater than 0")
    # The same rate is the same event, however it is written.
    whole, _, places = rate.partition(".")
    places = places.rstrip("0")
    whole = whole.lstrip("0") or "0"
    return f"{whole}.{places}" if places else whole


def _known(currency: str) -> str:
    if currency not in CURRENCIES:
        raise ValueError("must be a currency of ISO 4217")
    return currency


class ConvertedAmount(Request):
    """The amount in the currency of the merchant."""

    amount: Annotated[Amount, Field(description="Minor units of `currency`.")]
    currency: Annotated[
        Annotated[Currency, AfterValidator(_known)],
        Field(description="Currency of the merchant (ISO 4217)."),
    ]


class Conversion(Request):
    """How the network has converted the amount of the merchant to that of the event."""

    merchant_amount: Annotated[
        ConvertedAmount, Field(description="What the merchant asked for, in its currency.")
    ]
    rate: Annotated[
        Annotated[str, StringConstraints(strict=True, pattern=_RATE)],
        AfterValidator(canonical_rate),
        Field(
            description="Units of the event's `currency` for one unit of the merchant's, a decimal"
            " in quotes with up to 12 places. It is kept as it is: the ledger books `amount`, which"
            " may include the network's fees.",
            examples=["1.0873"],
        ),
    ]


CONVERSION: Final[TypeAdapter[Conversion]] = TypeAdapter(Conversion)
"""Parses a conversion on its own, as a message in the inbox has it."""
