"""Types that all messages share: ids, amounts, currencies, times, pages."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
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
    TypeAdapter,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import override

from cardledger.schema.ids import Id
from cardledger.schema.wire import iso4217

MAX_AMOUNT: Final = 2**63 - 1


def drop_null(schema: dict[str, Any]) -> None:
    """Remove null from the alternatives of `schema`."""
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        del schema["anyOf"]
        schema.update({**options[0], **schema})
    elif options:
        schema["anyOf"] = options


class Request(BaseModel):
    """A request: camelCase names, no unknown fields, strict types."""

    model_config = ConfigDict(  # type: ignore[pydantic-alias] # Requests are parsed, not built.
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        validate_by_name=False,
        validate_by_alias=True,
    )


class Response(BaseModel):
    """A response: camelCase names; fields that are None are left out."""

    model_config = ConfigDict(
        alias_generator=to_camel, frozen=True, validate_by_name=True, validate_by_alias=True
    )

    @override
    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema of the JSON that is sent: without nulls, which `wire` leaves out."""
        named = handler(core_schema)
        schema = handler.resolve_ref_schema(named)
        required = schema.get("required", [])
        for name, field in schema.get("properties", {}).items():
            if name in required:
                continue
            if field.pop("default", None) is not None:
                schema["required"] = required = [*required, name]  # It is always present.
            drop_null(field)
        return named

    def wire(self) -> dict[str, Any]:
        """Return the JSON object that is sent."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Documented:
    """Metadata of a field of a response: the document shows the schema of another type.

    Responses are not checked against it when they are made: a value that was accepted once stays
    readable after the rules for new values have changed.
    """

    def __init__(self, shown: Any) -> None:  # noqa: ANN401 - a type
        self._shown: Final = shown

    def __get_pydantic_json_schema__(
        self, _core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(TypeAdapter(self._shown).core_schema)


def public_id(resource: str, key: Id) -> str:
    """Return the public id of `key`, such as `Card:0193...`."""
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


PaymentRail = Literal[
    "ACH",
    "ACH_COLOMBIA",
    "BANK_TRANSFER",
    "BRE_B",
    "CIPS",
    "FAST",
    "FASTER_PAYMENTS",
    "FEDNOW",
    "INSTAPAY",
    "MOBILE_MONEY",
    "NEFT",
    "PAYNOW",
    "PESONET",
    "PIX",
    "RTGS",
    "RTP",
    "SEPA",
    "SEPA_INSTANT",
    "SPEI",
    "SWIFT",
    "UNIONPAY",
    "UPI",
    "WIRE",
]
"""Every payment rail of the interface."""


UUID_PATTERN: Final = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
"""The documented form; a percent-encoded colon before it is accepted, too."""


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
            json_schema_extra={"pattern": f"^{resource}:{UUID_PATTERN}$"},
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
        PlainSerializer(lambda named: public_id(named.resource, named.key), return_type=str),
        Field(
            examples=[f"{resources[0]}:019542f5-b3e7-7d02-0000-00000000a1b4"],
            json_schema_extra={"pattern": f"^({'|'.join(resources)}):{UUID_PATTERN}$"},
        ),
    ]


def _reference_type(*resources: str) -> Any:  # noqa: ANN401 - a type made for a field
    """Return the type of a field of a response with the public id of one of several types."""
    return Annotated[
        str,
        Field(
            examples=[f"{resources[0]}:019542f5-b3e7-7d02-0000-00000000a1b4"],
            json_schema_extra={"pattern": f"^({'|'.join(resources)}):{UUID_PATTERN}$"},
        ),
    ]


CustomerId = _id_type("Customer")
InternalAccountId = _id_type("InternalAccount")
ExternalAccountId = _id_type("ExternalAccount")
CardId = _id_type("Card")
CardTransactionId = _id_type("CardTransaction")
TransactionId = _id_type("Transaction")
QuoteId = _id_type("Quote")
LookupId = _id_type("Lookup")
AnyTransactionId = _any_id_type("Transaction", "CardTransaction")
AnyAccountId = _any_id_type("InternalAccount", "ExternalAccount")
AnyOwnerId = _any_id_type("Customer", "PlatformConfig")
AnyAccountReference = _reference_type("InternalAccount", "ExternalAccount")
OwnerReference = _reference_type("Customer", "PlatformConfig")
"""The owner of a payment: a customer, or the platform itself."""
PlatformConfigId = _id_type("PlatformConfig")
WebhookId = _id_type("Webhook")
WebhookEndpointId = _id_type("WebhookEndpoint")
WebhookDeliveryId = _id_type("WebhookDelivery")
TokenId = _id_type("Token")
BeneficialOwnerId = _id_type("BeneficialOwner")
VerificationId = _id_type("Verification")
DocumentId = _id_type("Document")
JobId = _id_type("Job")
ExternalAccountChallengeId = _id_type("ExternalAccountChallenge")
HolderId = _any_id_type("Customer", "BeneficialOwner")
AgentId = _id_type("Agent")
AgentActionId = _id_type("AgentAction")
RejectionId = _id_type("Rejection")
ParkedEventId = _id_type("ParkedEvent")
ScaChallengeId = _id_type("ScaChallenge")
ScaResetId = _id_type("ScaReset")

Amount = Annotated[int, Field(strict=True, gt=0, le=MAX_AMOUNT)]
"""Minor units, above zero."""

NonNegativeAmount = Annotated[int, Field(strict=True, ge=0, le=MAX_AMOUNT)]
"""Minor units, zero allowed."""


def _not_null(value: object) -> object:
    # Defaults are not validated: None is here only when null was sent.
    if value is None:
        message = "must not be null; leave it out to keep its value"
        raise ValueError(message)
    return value


NOT_NULLABLE: Final = BeforeValidator(_not_null)
"""Metadata of an optional field that does not accept null."""


def _no_nul(value: str) -> str:
    # PostgreSQL cannot store it, and no name contains it.
    if "\x00" in value:
        message = "must not contain the character U+0000"
        raise ValueError(message)
    return value


def _storable(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        message = "must be valid Unicode: it contains a lone surrogate"
        raise ValueError(message) from None
    return _no_nul(value)


STORABLE: Final = AfterValidator(_storable)
"""Metadata of a string that a `text` column can store."""

Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=255), STORABLE]
ShortName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=100), STORABLE]
LongName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=2048), STORABLE]
Currency = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Z]{3,8}$")]
Country = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Z]{2}$")]
Mcc = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9]{4}$")]


_RFC3339: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)


def _is_rfc3339(value: object) -> object:
    # Pydantic would also read a number as seconds since 1970, and "0.5" as half a second.
    if isinstance(value, datetime) or (isinstance(value, str) and _RFC3339.fullmatch(value)):
        return value
    message = "must be a time with its zone, such as 2026-01-31T12:00:00Z"
    raise ValueError(message)


def _in_utc(value: datetime) -> datetime:
    # Checked on entry: every accepted time can be stored and sent.
    try:
        return value.astimezone(UTC)
    except OverflowError:
        message = "must be in the years 0001 to 9999 in UTC"
        raise ValueError(message) from None


@lru_cache(maxsize=10_000)
def rfc3339(value: datetime) -> str:
    """Return `value` as it is sent: in UTC, with microseconds and `Z`.

    Cached: all records of one commit, and their hundreds of webhooks, have the same time.
    """
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


Time = Annotated[
    AwareDatetime,
    BeforeValidator(_is_rfc3339, json_schema_input_type=AwareDatetime),
    AfterValidator(_in_utc),
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
    WithJsonSchema(
        {"type": "string", "format": "date-time", "examples": ["2026-01-31T12:00:00.000000Z"]}
    ),
]
"""RFC 3339; stored and sent in UTC with `Z`."""


def _day(value: object) -> object:
    # Without this check, Pydantic reads a number as seconds since 1970.
    if isinstance(value, date) or (
        isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value, re.ASCII)
    ):
        return value
    message = "must be a date of the form YYYY-MM-DD"
    raise ValueError(message)


Day = Annotated[date, BeforeValidator(_day, json_schema_input_type=date)]
"""A date of the form YYYY-MM-DD."""


class Merchant(Request):
    """The merchant at which a card was used."""

    descriptor: Annotated[Name, Field(description="Name of the merchant as on a statement.")]
    mcc: Annotated[Mcc | None, Field(description="Merchant category code (ISO 18245).")] = None
    country: Annotated[Country | None, Field(description="Country (ISO 3166-1 alpha-2).")] = None


class CurrencyInfo(Response):
    """A currency with its name, symbol and number of decimals."""

    code: str
    name: str
    symbol: str
    decimals: int


_FIRST: Final = ("USD", "EUR", "GBP", "INR", "MXN", "JPY")
"""The currencies that come first in lists."""

_TICKERS: Final = (
    CurrencyInfo(code="USDC", name="USD Coin", symbol="", decimals=6),
    CurrencyInfo(code="USDB", name="USDB", symbol="", decimals=6),
    CurrencyInfo(code="BTC", name="Bitcoin", symbol="₿", decimals=8),
)

CURRENCIES: Final[Mapping[str, CurrencyInfo]] = {
    code: CurrencyInfo(code=code, name=iso.name, symbol=iso.symbol, decimals=iso.decimals)
    for code in dict.fromkeys((*_FIRST, *iso4217.CURRENCIES))
    for iso in (iso4217.CURRENCIES[code],)
} | {info.code: info for info in _TICKERS}
"""The currencies of the ledger, with their number of decimals: ISO 4217 and three tickers."""

CRYPTO: Final = frozenset(info.code for info in _TICKERS)

NO_CURRENCY: Final = f"is not an active code of ISO 4217, nor one of {', '.join(sorted(CRYPTO))}"
"""What is wrong with a code that the ledger does not know."""


class CurrencyAmount(Response):
    """An amount in minor units and its currency."""

    amount: int
    currency: CurrencyInfo


_CURRENCIES: Final = {code: info.wire() for code, info in CURRENCIES.items()}


def amount(amount: int, currency: str) -> dict[str, Any]:
    """Return the JSON of `money`; it must not be modified."""
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
    """Return `amount` minor units of `currency` as a response has them."""
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
    # A query parameter is text, and Pydantic would also accept "1.0", "+1" and "1_0".
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,9}", value, re.ASCII):
        message = "must be an integer from 1 to 100"
        raise ValueError(message)
    return value


PageLimit = Annotated[
    int,
    Field(ge=1, le=100),
    BeforeValidator(_digits, json_schema_input_type=Annotated[int, Field(ge=1, le=100)]),
]
"""How many items a page has at most."""


class PageQuery(Request):
    """The page of a list: `cursor` is the `nextCursor` of the previous page."""

    limit: PageLimit = 20
    cursor: LongName | None = None


SortOrder = Literal["asc", "desc"]
"""The order of creation; `desc` returns the newest first."""
