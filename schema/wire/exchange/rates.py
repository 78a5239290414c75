"""Exchange rates."""

import re
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from cardledger.schema.wire.common import Currency, CurrencyInfo, Request, Response, Time

MAX_QUOTED: Final = 9_000_000_000_000_000
"""The largest amount of a quote, in minor units."""

DESTINATIONS_LIMIT: Final = 40
"""The most destination currencies of one request, within the limit of query parameters."""

_RATE_DIGITS: Final = 12


def _shown(rate: Decimal) -> float | int:
    # At most twelve digits, so the float is written as exactly the decimal.
    return int(rate) if rate == rate.to_integral_value() else float(rate)


ShownRate = Annotated[
    Decimal,
    PlainSerializer(_shown, return_type=float | int, when_used="json"),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "examples": [1.0924]}),
]
"""Minor units sent for one minor unit received: an exact decimal, written as a number."""


def _exact(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        message = "must be a number"
        raise ValueError(message)  # noqa: TRY004 - Pydantic wants a ValueError
    # `repr` of a float is the shortest number that it represents: the one that was sent.
    rate = value if isinstance(value, Decimal) else Decimal(repr(value))
    if not rate.is_finite() or not Decimal("1e-9") <= rate <= Decimal("1e9"):
        message = "must be from 1e-9 to 1e9"
        raise ValueError(message)
    if len(rate.normalize().as_tuple().digits) > _RATE_DIGITS:
        message = f"must have at most {_RATE_DIGITS} significant digits"
        raise ValueError(message)
    return rate


SentRate = Annotated[
    Decimal,
    BeforeValidator(_exact),
    WithJsonSchema(
        {"type": "number", "minimum": 1e-9, "maximum": 1_000_000_000, "examples": [1.0924]}
    ),
]
"""A rate of at most twelve significant digits: a decimal, not a float."""


def _amount(value: Any) -> Any:  # noqa: ANN401 - whatever was sent
    # A query parameter is text, and Pydantic would also accept "1.0", "+1" and "1_0".
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,19}", value, re.ASCII):
        message = f"must be an integer from 1 to {MAX_QUOTED}"
        raise ValueError(message)
    return value


QueryAmount = Annotated[
    int,
    Field(ge=1, le=MAX_QUOTED),
    BeforeValidator(_amount, json_schema_input_type=Annotated[int, Field(ge=1, le=MAX_QUOTED)]),
]
"""Minor units in a query, above zero."""


class ExchangeRatesQuery(Request):
    """Which rates to list; `destinationCurrency` may be sent several times."""

    source_currency: Currency | None = None
    destination_currency: Annotated[
        list[Currency] | None, Field(min_length=1, max_length=DESTINATIONS_LIMIT)
    ] = None
    sending_amount: QueryAmount = 10_000


class ExchangeRateSet(Request):
    """A rate to be set; it is used as it is, without the spread of the installation."""

    source_currency: Currency
    destination_currency: Annotated[Currency, Field(examples=["EUR"])]
    exchange_rate: SentRate


class ExchangeRateFees(Response):
    """The fees of a conversion, in minor units of the source currency."""

    fixed: int
    total: int


class ExchangeRateResource(Response):
    """What a conversion costs now: `receivingAmount` arrives when `sendingAmount` is sent.

    `exchangeRate` is minor units sent for one minor unit received, the spread included: what is
    received is `sendingAmount` without `fees.total`, divided by it and rounded down.
    """

    source_currency: CurrencyInfo
    destination_currency: CurrencyInfo
    destination_payment_rail: Annotated[str, Field(examples=["SEPA_INSTANT"])]
    min_sending_amount: int
    max_sending_amount: int
    sending_amount: int
    receiving_amount: int
    exchange_rate: ShownRate
    fees: ExchangeRateFees
    updated_at: Time


class ExchangeRateList(Response):
    """Exchange rates, by source currency, destination currency and rail."""

    data: list[ExchangeRateResource]
