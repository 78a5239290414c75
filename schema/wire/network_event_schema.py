"""The JSON Schema of a network event, and an example of each type.

Made of the models, so that it accepts what they accept. What a schema cannot say they check, too:
an integer is written without a decimal point, and a string has no U+0000 and no lone surrogate.
"""

from collections.abc import Mapping
from typing import Any, Final

from cardledger.schema.wire.network_events import EVENT_MEANINGS, NETWORK_EVENT, EventType

Json = dict[str, Any]

_CARD: Final = {"cardId": "Card:019542f5-b3e7-7d02-0000-00000000a1b4", "currency": "USD"}
_HOTEL: Final = {"issuerTransactionToken": "hotel-4711", **_CARD}
_PUMP: Final = {"issuerTransactionToken": "pump-4712", **_CARD}
_CASH: Final = {"issuerTransactionToken": "cash-4713", **_CARD}
_BACK: Final = {"issuerTransactionToken": "shoes-4715", **_CARD}
_PUSH: Final = {"issuerTransactionToken": "push-4714", **_CARD}


def _example(kind: EventType, reference: str, purchase: Mapping[str, Any], **more: object) -> Json:
    return {"type": kind.value, "source": "visa", "reference": reference, **purchase, **more}


EXAMPLES: Final[Mapping[EventType, Json]] = {
    EventType.AUTHORIZATION: _example(
        EventType.AUTHORIZATION,
        "evt-1",
        _HOTEL,
        amount=20_000,
        merchant={"descriptor": "GRAND HOTEL", "mcc": "7011", "country": "US"},
        occurredAt="2026-01-31T12:00:00Z",
        decideBy="2026-01-31T12:00:02Z",
    ),
    EventType.AUTHORIZATION_INCREMENT: _example(
        EventType.AUTHORIZATION_INCREMENT, "evt-2", _HOTEL, amount=8_000
    ),
    EventType.AUTHORIZATION_ADVICE: _example(
        EventType.AUTHORIZATION_ADVICE, "evt-3", _HOTEL, amount=25_000
    ),
    EventType.AUTHORIZATION_REVERSAL: _example(
        EventType.AUTHORIZATION_REVERSAL, "evt-4", _HOTEL, amount=4_000
    ),
    EventType.CLEARING: _example(
        EventType.CLEARING,
        "evt-5",
        _HOTEL,
        amount=22_000,
        final=True,
        settlement={
            "network": "VISA",
            "settlementDate": "2026-02-02",
            "cycle": "1",
            "acquirerReference": "74537606033123456789012",
            "networkReference": "386033501234567",
            "merchantAmount": {"amount": 18_480, "currency": "EUR"},
            "interchange": "3.52",
            "feeProgram": "CPS/Hotel",
        },
    ),
    EventType.CLEARING_REVERSAL: _example(
        EventType.CLEARING_REVERSAL, "evt-6", _HOTEL, amount=1_000
    ),
    EventType.RETURN: _example(EventType.RETURN, "evt-7", _HOTEL, amount=3_000),
    EventType.RETURN_REVERSAL: _example(EventType.RETURN_REVERSAL, "evt-8", _HOTEL, amount=3_000),
    EventType.STAND_IN_AUTHORIZATION: _example(
        EventType.STAND_IN_AUTHORIZATION,
        "evt-9",
        _PUMP,
        amount=5_000,
        merchant={"descriptor": "FUEL 24", "mcc": "5542", "country": "US"},
    ),
    EventType.AUTHORIZATION_EXPIRY: _example(EventType.AUTHORIZATION_EXPIRY, "evt-10", _PUMP),
    EventType.FINANCIAL_AUTHORIZATION: _example(
        EventType.FINANCIAL_AUTHORIZATION,
        "evt-11",
        _CASH,
        amount=6_000,
        merchant={"descriptor": "ATM 12", "mcc": "6011", "country": "DE"},
        conversion={"merchantAmount": {"amount": 5_520, "currency": "EUR"}, "rate": "1.0869"},
    ),
    EventType.FINANCIAL_CREDIT_AUTHORIZATION: _example(
        EventType.FINANCIAL_CREDIT_AUTHORIZATION, "evt-12", _PUSH, amount=2_500
    ),
    EventType.CREDIT_AUTHORIZATION: _example(
        EventType.CREDIT_AUTHORIZATION,
        "evt-13",
        _BACK,
        amount=4_000,
        merchant={"descriptor": "SHOES AND MORE", "mcc": "5661", "country": "US"},
    ),
    EventType.CREDIT_AUTHORIZATION_ADVICE: _example(
        EventType.CREDIT_AUTHORIZATION_ADVICE, "evt-14", _BACK, amount=3_500
    ),
}
"""An event of each type; in this order all of them are applied to a card with 500.00 USD."""


_PARTS: Final = (
    "Merchant",
    "Settlement",
    "MerchantAmount",
    "Conversion",
    "ConvertedAmount",
)


def json_schema() -> Json:
    """Return the JSON Schema (2020-12) of one network event, with a definition for each type."""
    models = NETWORK_EVENT.json_schema()
    of_type = {
        kind: models["$defs"][reference.rpartition("/")[2]]
        for kind, reference in models["discriminator"]["mapping"].items()
    }
    definitions = {kind.value: _definition(kind, of_type[kind]) for kind in EventType}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "NetworkEvent",
        "description": "A network event, as it is submitted; `type` selects the definition.",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in definitions],
        "discriminator": {"propertyName": "type"},
        "$defs": definitions | {name: _tidy(models["$defs"][name]) for name in _PARTS},
    }


def _definition(kind: EventType, model: Json) -> Json:
    """Return the schema of events of type `kind`, which `model` describes with others."""
    tidy = _tidy(model)
    type_field = {"const": kind.value, "description": "The type of the event."}
    # First, whatever its place in the model.
    properties = {"type": type_field, **tidy["properties"]} | {"type": type_field}
    return tidy | {
        "title": kind.value,
        "description": EVENT_MEANINGS[kind],
        "properties": properties,
        "required": [name for name in properties if name in tidy["required"]],
        "examples": [EXAMPLES[kind]],
    }


def _tidy(model: Json) -> Json:
    """Return the schema of `model` without titles of fields and defaults of null."""
    fields = {name: _field(field) for name, field in model["properties"].items()}
    return model | {"properties": fields}


def _field(field: Json) -> Json:
    """Return the schema of a field: null, where allowed, is one of its types."""
    rest = {name: part for name, part in field.items() if name not in {"title", "default"}}
    options = rest.get("anyOf", [])
    if len(options) == 2 and "type" in options[0]:  # noqa: PLR2004 - a value or null
        del rest["anyOf"]
        return {**options[0], **rest, "type": [options[0]["type"], "null"]}
    return rest
