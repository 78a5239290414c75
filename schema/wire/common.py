"""Parts that every message shares: identifiers, amounts, currencies, times, pages."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Generic, Literal, TypeVar
from urllib.parse import unquote

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import override

from cardledger.schema.ids import Id

MAX_AMOUNT: Final = 2**63 - 1


def drop_null(schema: dict[str, Any]) -> None:
    """Take null out of what `schema` allows."""
    options = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if len(options) == 1:
        del schema["anyOf"]
        schema.update({**options[0], **schema})
    elif options:
        schema["anyOf"] = options


class Request(BaseModel):
    """What comes in: camelCase, no unknown field, no number that is not one."""

    model_config = ConfigDict(  # type: ignore[pydantic-alias] # Requests are parsed, not built.
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        validate_by_name=False,
        validate_by_alias=True,
    )


class Response(BaseModel):
    """What goes out: camelCase; a field that has nothing to say is left out."""

    model_config = ConfigDict(
        alias_generator=to_camel, frozen=True, validate_by_name=True, validate_by_alias=True
    )

    @override
    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema of what is sent: without nulls, because `wire` leaves them out."""
        named = handler(core_schema)
        schema = handler.resolve_ref_schema(named)
        required = schema.get("required", [])
        for name, field in schema.get("properties", {}).items():
            if name in required:
                continue
            if field.pop("default", None) is not None:
                schema["required"] = required = [*required, name]  # It always says something.
            drop_null(field)
        return named

    def wire(self) -> dict[str, Any]:
        """Return the JSON object that is sent."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def public_id(resource: str, key: Id) -> str:
    """Return `key` as the outside sees it: `Card:0193...`."""
    return f"{resource}:{key}"


def parse_id(resource: str, value: str) -> Id:
    """Return the UUID inside `value`, raw or percent-encoded.

    Raises: ValueError when it is not of the form `<resource>:<uuid>`.
    """
    kind, separator, key = unquote(value).partition(":")
    if kind != resource or not separator or len(key) != 36:  # noqa: PLR2004 - a UUID with dashes
        message = f"must be of the form {resource}:<uuid>"
        raise ValueError(message)
    try:
        return Id.parse(key)
    except ValueError:
        message = f"must be of the form {resource}:<uuid>"
        raise ValueError(message) from None


_UUID: Final = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
"""As documents say it; what is read is a little more, such as a percent-encoded colon."""


def _id_type(resource: str) -> Any:  # noqa: ANN401 - a type made for a field
    def parse(value: object) -> Id:
        if isinstance(value, Id):
            return value
        if not isinstance(value, str):
            message = f"must be a string of the form {resource}:<uuid>"
            raise ValueError(message)  # noqa: TRY004 - Pydantic wants a ValueError
        return parse_id(resource, value)

    return Annotated[
        Id,
        PlainValidator(parse, json_schema_input_type=str),
        PlainSerializer(lambda key: public_id(resource, key), return_type=str),
        Field(
            examples=[f"{resource}:019542f5-b3e7-7d02-0000-00000000a1b4"],
            json_schema_extra={"pattern": f"^{resource}:{_UUID}$"},
        ),
    ]


@dataclass(frozen=True, slots=True)
class TypedId:
    """An id of one of several types."""

    resource: str
    key: Id


def _any_id_type(*resources: str) -> Any:  # noqa: ANN401 - a type made for a field
    def parse(value: str) -> TypedId:
        kind = unquote(value).partition(":")[0]
        if kind not in resources:
            message = f"must be of the form {' or '.join(f'{name}:<uuid>' for name in resources)}"
            raise ValueError(message)
        return TypedId(kind, parse_id(kind, value))

    return Annotated[
        str,
        AfterValidator(parse),
        Field(examples=[f"{resources[0]}:019542f5-b3e7-7d02-0000-00000000a1b4"]),
    ]


CustomerId = _id_type("Customer")
InternalAccountId = _id_type("InternalAccount")
ExternalAccountId = _id_type("ExternalAccount")
CardId = _id_type("Card")
CardTransactionId = _id_type("CardTransaction")
TransactionId = _id_type("Transaction")
AnyTransactionId = _any_id_type("Transaction", "CardTransaction")
AnyAccountId = _any_id_type("InternalAccount", "ExternalAccount")
PlatformConfigId = _id_type("PlatformConfig")
WebhookId = _id_type("Webhook")
WebhookEndpointId = _id_type("WebhookEndpoint")
WebhookDeliveryId = _id_type("WebhookDelivery")
TokenId = _id_type("Token")
BeneficialOwnerId = _id_type("BeneficialOwner")
VerificationId = _id_type("Verification")
AgentId = _id_type("Agent")
AgentActionId = _id_type("AgentAction")

Amount = Annotated[int, Field(strict=True, gt=0, le=MAX_AMOUNT)]
"""Minor units, above zero."""

NonNegativeAmount = Annotated[int, Field(strict=True, ge=0, le=MAX_AMOUNT)]
"""Minor units, zero allowed."""


def _stays(value: object) -> object:
    # Defaults are not looked at: only who sends null gets here with None.
    if value is None:
        message = "must not be null; leave it out to keep it as it is"
        raise ValueError(message)
    return value


NOT_NULLABLE: Final = BeforeValidator(_stays)
"""Metadata of an optional field that null does not take away."""


def _no_nul(value: str) -> str:
    # PostgreSQL cannot keep it, and no name has it.
    if "\x00" in value:
        message = "must not contain the character U+0000"
        raise ValueError(message)
    return value


def _storable(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        message = "must be valid Unicode: it has a lone surrogate"
        raise ValueError(message) from None
    return _no_nul(value)


STORABLE: Final = AfterValidator(_storable)
"""Metadata of a string that a `text` column can keep."""

Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=255), STORABLE]
ShortName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=100), STORABLE]
LongName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=2048), STORABLE]
Currency = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Z]{3,8}$")]
Country = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Z]{2}$")]
Mcc = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9]{4}$")]


_RFC3339: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)


def _written_out(value: object) -> object:
    # Pydantic would also read a number as seconds since 1970, and "0.5" as half of one.
    if isinstance(value, datetime) or (isinstance(value, str) and _RFC3339.fullmatch(value)):
        return value
    message = "must be a time with its zone, such as 2026-01-31T12:00:00Z"
    raise ValueError(message)


def _in_utc(value: datetime) -> datetime:
    # Here and not on the way out: what was accepted has to be sent and stored, too.
    try:
        return value.astimezone(UTC)
    except OverflowError:
        message = "must be in the years 0001 to 9999 in UTC"
        raise ValueError(message) from None


@lru_cache(maxsize=10_000)
def rfc3339(value: datetime) -> str:
    """Return `value` as it is sent: in UTC, with microseconds and `Z`.

    What one commit records has one time, which is told with each of its hundreds of webhooks.
    """
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


Time = Annotated[
    AwareDatetime,
    BeforeValidator(_written_out, json_schema_input_type=AwareDatetime),
    AfterValidator(_in_utc),
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
    WithJsonSchema(
        {"type": "string", "format": "date-time", "examples": ["2026-01-31T12:00:00.000000Z"]}
    ),
]
"""RFC 3339; kept and sent in UTC with `Z`."""


class Merchant(Request):
    """Where a card was used."""

    descriptor: Name
    mcc: Mcc | None = None
    country: Country | None = None


class CurrencyInfo(Response):
    """A currency, in full as responses show it."""

    code: str
    name: str
    symbol: str
    decimals: int


CURRENCIES: Final[Mapping[str, CurrencyInfo]] = {
    info.code: info
    for info in (
        CurrencyInfo(code="USD", name="United States Dollar", symbol="$", decimals=2),
        CurrencyInfo(code="EUR", name="Euro", symbol="€", decimals=2),
        CurrencyInfo(code="GBP", name="Pound Sterling", symbol="£", decimals=2),
        CurrencyInfo(code="INR", name="Indian Rupee", symbol="₹", decimals=2),
        CurrencyInfo(code="MXN", name="Mexican Peso", symbol="$", decimals=2),
        CurrencyInfo(code="JPY", name="Japanese Yen", symbol="¥", decimals=0),
        CurrencyInfo(code="USDC", name="USD Coin", symbol="", decimals=6),
        CurrencyInfo(code="USDB", name="USDB", symbol="", decimals=6),
        CurrencyInfo(code="BTC", name="Bitcoin", symbol="₿", decimals=8),
    )
}
"""Currencies the ledger knows; the exponent is data, never guessed."""

CRYPTO: Final = frozenset({"USDC", "USDB", "BTC"})


class CurrencyAmount(Response):
    """An amount with its currency: `{amount, currency{code, name, symbol, decimals}}`."""

    amount: int
    currency: CurrencyInfo


_CURRENCIES: Final = {code: info.wire() for code, info in CURRENCIES.items()}


def amount(amount: int, currency: str) -> dict[str, Any]:
    """Return the JSON of `money`; nobody may change it."""
    return {"amount": amount, "currency": _CURRENCIES[currency]}


def format_amount(amount: int, currency: str) -> str:
    """Return `amount`, in minor units, as people read it: `1,234.50 USD`."""
    known = CURRENCIES.get(currency)
    if known is None:
        return f"{amount:,} minor units of {currency}"
    whole, part = divmod(amount, 10**known.decimals)
    fraction = f".{part:0{known.decimals}}" if known.decimals else ""
    return f"{whole:,}{fraction} {currency}"


def money(amount: int, currency: str) -> CurrencyAmount:
    """Return `amount` minor units of `currency` as responses show it."""
    return CurrencyAmount(amount=amount, currency=CURRENCIES[currency])


Item = TypeVar("Item", bound=Response)


class Page(Response, Generic[Item]):
    """One page of a list.

    `nextCursor` is present only when `hasMore` is true. `totalCount` counts all pages and is exact
    up to 10,000; above 10,000 it is absent.
    """

    data: list[Item]
    has_more: bool
    next_cursor: str | None = None
    total_count: int | None = None


def _digits(value: object) -> object:
    # A query holds text, and Pydantic would also read "1.0", "+1" and "1_0" as numbers.
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,9}", value, re.ASCII):
        message = "must be an integer from 1 to 100"
        raise ValueError(message)
    return value


class PageQuery(Request):
    """Which page of a list: `cursor` is the `nextCursor` of the page before."""

    limit: Annotated[
        int,
        Field(ge=1, le=100),
        BeforeValidator(_digits, json_schema_input_type=Annotated[int, Field(ge=1, le=100)]),
    ] = 20
    cursor: LongName | None = None


SortOrder = Literal["asc", "desc"]
"""By creation; `desc` begins with the newest."""
