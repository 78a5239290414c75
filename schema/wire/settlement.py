"""Settlement details: what the network says about how it settles a movement of money."""

import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter

from cardledger.schema.wire.common import Amount, Currency, Day, Request, ShortName

RESERVED_NETWORK: Final = "BOOKS"
"""The calendar of everything that has no network's: no network has its name."""

NETWORK_PATTERN: Final = r"^[A-Z0-9][A-Z0-9_-]{0,63}$"
"""What names of networks look like."""

_INTERCHANGE: Final = r"^[+-]?[0-9]{1,12}(\.[0-9]{1,6})?$"


def _not_reserved(network: str) -> str:
    if network == RESERVED_NETWORK:
        message = f"must not be {RESERVED_NETWORK}, the calendar of the books"
        raise ValueError(message)
    return network


def _canonical(interchange: str) -> str:
    # The same amount is the same event, however it is written.
    text = f"{Decimal(interchange):f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if re.fullmatch("-0*", text) else text


class MerchantAmount(Request):
    """The amount in the currency of the merchant."""

    amount: Annotated[Amount, Field(description="Minor units of `currency`.")]
    currency: Annotated[Currency, Field(description="Currency of the merchant (ISO 4217).")]


class Settlement(Request):
    """What the network says about how it settles this event; finance reconciles by it."""

    network: Annotated[
        Annotated[str, StringConstraints(strict=True, pattern=NETWORK_PATTERN)],
        AfterValidator(_not_reserved),
        Field(
            description="The network, as its calendar is called (`cardledger calendar`).",
            examples=["VISA"],
            json_schema_extra={"not": {"const": RESERVED_NETWORK}},
        ),
    ]
    institution_id: Annotated[
        ShortName | None, Field(description="Identifier of your institution at the network.")
    ] = None
    settlement_date: Annotated[
        Day,
        Field(
            description="Business date of the network on which it settles the movement: the day on"
            " which the ledger posts it, but no later than the business day of recording."
        ),
    ]
    cycle: Annotated[
        ShortName | None, Field(description="Settlement cycle within `settlementDate`.")
    ] = None
    acquirer_reference: Annotated[
        Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9]{23}$")] | None,
        Field(description="Acquirer reference number (ARN), 23 digits."),
    ] = None
    network_reference: Annotated[
        ShortName | None,
        Field(
            description="Identifier of the transaction at the network: Visa's transaction"
            " identifier, Mastercard's trace id. Never a card number."
        ),
    ] = None
    merchant_amount: Annotated[
        MerchantAmount | None,
        Field(description="The amount in the currency of the merchant, if that is another one."),
    ] = None
    interchange: Annotated[
        Annotated[
            str,
            StringConstraints(strict=True, pattern=_INTERCHANGE),
            AfterValidator(_canonical),
        ]
        | None,
        Field(
            description="Interchange in major units of the event's `currency`, a decimal with up to"
            " 6 places in quotes; positive when you earn it.",
            examples=["0.231500"],
        ),
    ] = None
    fee_program: Annotated[
        ShortName | None, Field(description="Fee program by which the interchange was computed.")
    ] = None


SETTLEMENT: Final[TypeAdapter[Settlement]] = TypeAdapter(Settlement)
"""Parses settlement details on their own, as a message in the inbox has them."""
