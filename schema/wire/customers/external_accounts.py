"""External accounts: bank accounts and wallets outside the service, in 45 variants.

`VARIANTS` is the one place that knows them: a row says the fields, the rails that answers name,
and the ways in which an account can be told. Models, checks, documentation and tests come from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, Union

from pydantic import Field, StringConstraints, create_model
from pydantic.alias_generators import to_camel
from typing_extensions import override

from cardledger.schema.wire.common import (
    STORABLE,
    Country,
    Currency,
    CustomerId,
    ExternalAccountId,
    Name,
    PageQuery,
    Request,
    Response,
    ShortName,
)
from cardledger.schema.wire.customers.people import Address, Day, Email, PhoneNumber
from cardledger.schema.wire.errors import FieldError
from cardledger.schema.wire.iso4217 import CODES

Status = Literal["PENDING", "ACTIVE", "UNDER_REVIEW", "INACTIVE"]

VerificationStatus = Literal[
    "MATCHED",
    "PARTIAL_MATCH",
    "NOT_MATCHED",
    "UNSUPPORTED",
    "CHECKED_BY_RECEIVING_FI",
    "PENDING",
]

# --- beneficiaries -----------------------------------------------------------------------------


class Beneficiary(Request):
    """Who owns the account: what a person and a company have in common."""

    email: Email | None = None
    phone_number: PhoneNumber | None = None
    country_of_residence: Country | None = None
    address: Address | None = None


class IndividualBeneficiary(Beneficiary):
    """A person."""

    beneficiary_type: Literal["INDIVIDUAL"]
    full_name: Name
    birth_date: Day | None = None
    nationality: Country | None = None


class CadIndividualBeneficiary(IndividualBeneficiary):
    """A person with an account in Canada."""

    registration_number: ShortName | None = None


class CopIndividualBeneficiary(IndividualBeneficiary):
    """A person with an account in Colombia."""

    document_type: Literal["CC", "CE", "TI", "NIT", "PP"] | None = None
    document_number: Annotated[ShortName, Field(max_length=50)] | None = None


class BusinessBeneficiary(Beneficiary):
    """A company."""

    beneficiary_type: Literal["BUSINESS"]
    legal_name: Name
    registration_number: ShortName | None = None
    tax_id: ShortName | None = None


class BeneficiaryResource(Response):
    """Whose account it is, as readers see it: the fields of either kind that were sent."""

    beneficiary_type: Literal["INDIVIDUAL", "BUSINESS"]
    full_name: str | None = None
    legal_name: str | None = None
    birth_date: str | None = None
    nationality: str | None = None
    document_type: str | None = None
    document_number: str | None = None
    registration_number: str | None = None
    tax_id: str | None = None
    email: str | None = None
    phone_number: str | None = None
    country_of_residence: str | None = None
    address: dict[str, Any] | None = None


# --- fields ------------------------------------------------------------------------------------


def _text(shortest: int, longest: int, pattern: str | None = None, example: str = "") -> Any:  # noqa: ANN401 - a type
    limits = StringConstraints(
        strict=True, min_length=shortest, max_length=longest, pattern=pattern
    )
    shown = Field(examples=[example] if example else None)
    return Annotated[str, limits, STORABLE, shown]


def _digits(fewest: int, most: int | None = None, example: str = "") -> Any:  # noqa: ANN401 - a type
    most = most or fewest
    times = f"{fewest}" if fewest == most else f"{fewest},{most}"
    shown = example or ("1234567890" * 2)[:fewest]
    return _text(fewest, most, f"^[0-9]{{{times}}}$", shown)


def _phone(pattern: str = r"^\+[0-9]{6,14}$", prefix: str = "+1415") -> Any:  # noqa: ANN401 - a type
    return _text(7, 15, pattern, f"{prefix}712345678")


@dataclass(frozen=True, slots=True)
class Optional:
    """The type of a field that may be missing."""

    type: Any


BIC: Final = _text(8, 11, "^[A-Z]{4}[A-Z]{2}[A-Z0-9]{2}([A-Z0-9]{3})?$", "DEUTDEFF")
IBAN: Final = _text(15, 34, "^[A-Z]{2}[0-9]{2}[A-Za-z0-9]{11,30}$", "DE89370400440532013000")
NUMBER: Final = _text(1, 34, example="12345678901")
NAME: Final = _text(1, 255, example="First Bank")
SHORT_NAME: Final = _text(1, 140, example="First Bank")
BRANCH: Final = _digits(5)
PHONE: Final = _phone()
KIND: Final = Literal["CHECKING", "SAVINGS"]
WALLET: Final = _text(1, 128)

# --- variants ----------------------------------------------------------------------------------

_BANK: Final = ("BANK_TRANSFER",)
_MOBILE: Final = ("MOBILE_MONEY",)
_BOTH: Final = _BANK + _MOBILE
_SEPA: Final = ("SEPA", "SEPA_INSTANT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One kind of account: what it is made of.

    `ways` names the sets of fields that each say, alone, which account is meant, the identifier
    first: it is what the sandbox's suffixes look at, and all of them make two accounts the same.
    """

    account_type: str
    rails: Sequence[str]
    ways: Sequence[Sequence[str]]
    fields: Mapping[str, Any]
    currencies: frozenset[str] | None  # None: any, because tickers are an open set.
    one_way: bool = False  # Exactly one of the ways, not at least one.
    individual: type[IndividualBeneficiary] = IndividualBeneficiary
    individual_needs: Sequence[str] = ()
    alias: str | None = None  # Another name that readers may meet.

    @property
    def is_fiat(self) -> bool:
        """Whether a beneficiary owns it: wallets have none."""
        return bool(self.rails)


def _fiat(  # noqa: PLR0913 - the columns of a table
    currency: str,
    rails: Sequence[str],
    *ways: str,
    one_way: bool = False,
    individual: type[IndividualBeneficiary] = IndividualBeneficiary,
    individual_needs: Sequence[str] = (),
    currencies: frozenset[str] | None = None,
    **fields: Any,  # noqa: ANN401 - types
) -> Variant:
    return Variant(
        account_type=f"{currency}_ACCOUNT",
        rails=rails,
        ways=tuple(tuple(way.split()) for way in ways),
        fields=MappingProxyType(fields),
        one_way=one_way,
        individual=individual,
        individual_needs=individual_needs,
        currencies=currencies or frozenset({currency}),
    )


def _mobile(currency: str, phone: Any = PHONE, **fields: Any) -> Variant:  # noqa: ANN401 - types
    """Return a mobile-money wallet: a phone number at a provider."""
    way = " ".join(["phone_number", "provider", *fields])
    return _fiat(currency, _MOBILE, way, phone_number=phone, provider=NAME, **fields)


def _swift_code(currency: str, rails: Sequence[str] = _BANK, name: Any = NAME) -> Variant:  # noqa: ANN401 - a type
    """Return an account that is told by its number and its bank's BIC."""
    way = "account_number swift_code"
    return _fiat(currency, rails, way, bank_name=name, account_number=NUMBER, swift_code=BIC)


def _wallet(
    account_type: str,
    *ways: str,
    one_way: bool = False,
    alias: str | None = None,
    **fields: Any,  # noqa: ANN401 - types
) -> Variant:
    return Variant(
        account_type=account_type,
        rails=(),
        ways=tuple((way,) for way in ways) or (("address",),),
        fields=MappingProxyType(fields or {"address": WALLET}),
        one_way=one_way,
        currencies=None,
        alias=alias,
    )


_ROWS: Final = (
    _fiat(
        "AED", _BANK, "iban", individual_needs=("address",),
        iban=_text(23, 23, "^AE[0-9]{21}$", "AE070331234567890123456"), swift_code=Optional(BIC),
    ),
    _fiat(
        "BDT", _BOTH, "account_number bank_name", "phone_number",
        account_number=Optional(NUMBER), bank_name=NAME, branch_code=Optional(BRANCH),
        swift_code=Optional(BIC), phone_number=Optional(PHONE),
    ),
    _fiat(
        "BRL", ("PIX",), "pix_key",
        pix_key=_text(1, 77), tax_id=_digits(11, 14),
        pix_key_type=Literal["CPF", "CNPJ", "EMAIL", "PHONE", "RANDOM"],
    ),
    _mobile("BWP"),
    _fiat(
        "CAD", _BANK, "account_number bank_code branch_code",
        individual=CadIndividualBeneficiary,
        bank_code=_digits(3), branch_code=BRANCH, account_number=_digits(7, 12),
    ),
    _fiat(
        "CNY", _BOTH, "account_number bank_name", "phone_number bank_name",
        account_number=Optional(NUMBER), bank_name=NAME, phone_number=Optional(PHONE),
    ),
    _fiat(
        "COP", _BOTH, "account_number bank_name bank_account_type", "phone_number",
        individual=CopIndividualBeneficiary,
        account_number=Optional(NUMBER), bank_account_type=Optional(KIND), bank_name=NAME,
        phone_number=Optional(PHONE),
    ),
    _fiat(
        "DKK", _SEPA, "iban",
        iban=_text(18, 18, "^DK[0-9]{16}$", "DK5000400440116243"), swift_code=Optional(BIC),
    ),
    _fiat(
        "EGP", _BOTH, "iban", "phone_number",
        iban=Optional(_text(29, 29, "^EG[0-9]{27}$", "EG380019000500000000263180002")),
        bank_name=NAME, phone_number=Optional(PHONE),
    ),
    _fiat(
        "EUR", _SEPA, "iban", individual_needs=("country_of_residence",),
        iban=IBAN, swift_code=Optional(BIC),
    ),
    _fiat(
        "GBP", ("FASTER_PAYMENTS",), "account_number sort_code",
        sort_code=_digits(6), account_number=_digits(8),
    ),
    _fiat(
        "GHS", _BOTH, "account_number bank_name", "phone_number",
        account_number=Optional(NUMBER), bank_name=NAME, phone_number=Optional(PHONE),
    ),
    _fiat(
        "GTQ", _BANK, "account_number bank_name",
        individual_needs=("country_of_residence", "phone_number"),
        account_number=NUMBER, bank_account_type=KIND, bank_name=NAME,
    ),
    _swift_code("HKD"),
    _fiat("HTG", _MOBILE, "phone_number", phone_number=PHONE),
    _fiat(
        "IDR", _BANK, "account_number swift_code",
        bank_name=NAME, account_number=NUMBER, swift_code=BIC,
        phone_number=_phone(r"^\+62[0-9]{9,12}$", "+62"),
    ),
    _fiat(
        "INR", ("UPI", "NEFT", "RTGS"), "vpa", "account_number ifsc rail",
        vpa=Optional(_text(3, 255, r"^[a-zA-Z0-9.\-_]+@[a-zA-Z0-9]+$", "ada@okbank")),
        account_number=Optional(_digits(9, 18)),
        ifsc=Optional(_text(11, 11, "^[A-Z]{4}0[A-Z0-9]{6}$", "HDFC0001234")),
        rail=Optional(Literal["UPI", "NEFT", "RTGS"]), bank_name=Optional(NAME),
    ),
    _fiat(
        "JMD", _BANK, "account_number branch_code bank_name",
        individual_needs=("address", "phone_number"),
        account_number=NUMBER, branch_code=BRANCH, bank_account_type=KIND, bank_name=NAME,
    ),
    _mobile("KES", _phone(r"^\+254[0-9]{9}$", "+254")),
    _mobile("MWK"),
    _fiat("MXN", ("SPEI",), "clabe_number", clabe_number=_digits(18, example="032180000118359719")),
    _swift_code("MYR"),
    _fiat("NGN", _BANK, "account_number bank_name", account_number=_digits(10), bank_name=NAME),
    _fiat("PHP", _BANK, "account_number bank_name", bank_name=NAME, account_number=_digits(8, 16)),
    _fiat(
        "PKR", _BOTH, "account_number bank_name", "phone_number",
        bank_name=NAME, account_number=Optional(NUMBER),
        iban=Optional(_text(24, 24, "^PK[0-9]{2}[A-Z]{4}[0-9]{16}$", "PK36SCBL0000001123456702")),
        phone_number=Optional(PHONE),
    ),
    _mobile("RWF", _phone(r"^\+250[0-9]{9}$", "+250")),
    _swift_code("SGD", ("PAYNOW", "FAST", "BANK_TRANSFER"), Optional(NAME)),
    # El Salvador: the type names the country, which pays in US dollars.
    _fiat(
        "SLV", _BOTH, "account_number bank_name bank_account_type", "phone_number",
        currencies=frozenset({"SLV", "SVC", "USD"}),
        bank_name=Optional(NAME), account_number=Optional(NUMBER),
        bank_account_type=Optional(KIND), phone_number=Optional(PHONE),
    ),
    _swift_code("THB"),
    _mobile("TZS", _phone(r"^\+255[0-9]{9}$", "+255")),
    _mobile("UGX"),
    _fiat(
        "USD", ("ACH", "WIRE", "RTP", "FEDNOW"), "account_number routing_number",
        account_number=NUMBER, routing_number=_digits(9, example="021000021"),
        bank_name=Optional(SHORT_NAME),
        bank_account_type=Optional(KIND), intermediary_bank_name=Optional(SHORT_NAME),
        intermediary_routing_number=Optional(_digits(9, example="021000021")),
        fi_to_fi_information=Optional(_text(0, 210)),
    ),
    _swift_code("VND"),
    _mobile("XAF", region=Literal["CM", "CG"]),
    _mobile("XOF", region=Literal["BJ", "CI", "SN", "TG"]),
    _fiat("ZAR", _BANK, "account_number bank_name", account_number=_digits(9, 13), bank_name=NAME),
    _mobile("ZMW", _phone(r"^\+260[0-9]{9}$", "+260")),
    _fiat(
        "SWIFT", ("SWIFT",), "iban", "account_number swift_code", one_way=True,
        currencies=CODES,
        country=_text(2, 2, "^[A-Z]{2}$"), swift_code=BIC, bank_name=NAME,
        account_number=Optional(NUMBER), iban=Optional(IBAN),
    ),
    _wallet("BASE_WALLET"),
    _wallet("ETHEREUM_WALLET"),
    _wallet(
        "LIGHTNING", "invoice", "bolt12", "lightning_address", one_way=True,
        alias="LIGHTNING_ACCOUNT",
        invoice=Optional(_text(1, 4096)), bolt12=Optional(_text(1, 4096)),
        lightning_address=Optional(_text(3, 320)),
    ),
    _wallet("POLYGON_WALLET"),
    _wallet("SOLANA_WALLET"),
    _wallet("SPARK_WALLET"),
    _wallet("TRON_WALLET"),
)  # fmt: skip
VARIANTS: Final[Mapping[str, Variant]] = {row.account_type: row for row in _ROWS}


# --- models ------------------------------------------------------------------------------------


class AccountInfo(Request):
    """What says which account is meant; every variant has its own fields."""

    variant: ClassVar[Variant]
    account_type: str

    def has(self, way: Sequence[str]) -> bool:
        """Return whether every field of `way` was sent."""
        return all(getattr(self, field) is not None for field in way)

    @property
    def way(self) -> Sequence[str]:
        """The first way that is complete."""
        return next(way for way in self.variant.ways if self.has(way))

    @property
    def identifier(self) -> str:
        """The account number, IBAN, address or whatever the account is known by."""
        return str(getattr(self, self.way[0]))

    @property
    def owner(self) -> IndividualBeneficiary | BusinessBeneficiary | None:
        """Its beneficiary; None for wallets."""
        return getattr(self, "beneficiary", None)


def _asked(field: Any) -> Any:  # noqa: ANN401 - types
    return (field.type | None, None) if isinstance(field, Optional) else (field, ...)


def _told(field: Any) -> Any:  # noqa: ANN401 - types
    # What was once accepted stays readable whatever is asked of new accounts.
    return (str | None, None) if isinstance(field, Optional) else (str, ...)


def _model_name(variant: Variant) -> str:
    camel = to_camel(variant.account_type.lower())
    return camel[0].upper() + camel[1:]


def _request_model(variant: Variant) -> type[AccountInfo]:
    fields = {name: _asked(field) for name, field in variant.fields.items()}
    if variant.is_fiat:
        owner: Any = variant.individual | BusinessBeneficiary
        fields["beneficiary"] = (owner, Field(discriminator="beneficiary_type"))
    kind: Any = Literal[variant.account_type]
    model = create_model(
        f"{_model_name(variant)}Create",
        __base__=AccountInfo,
        __doc__=f"The details of a `{variant.account_type}`.",
        account_type=(kind, ...),
        **fields,
    )
    model.variant = variant
    return model


def _response_model(variant: Variant) -> type[Response]:
    kind: Any = Literal[variant.account_type, variant.alias or variant.account_type]
    fields = {name: _told(field) for name, field in variant.fields.items()}
    if variant.is_fiat:
        fields["beneficiary"] = (BeneficiaryResource, ...)
        fields["payment_rails"] = (list[str], ...)
    return create_model(
        f"{_model_name(variant)}Resource",
        __base__=Response,
        __doc__=f"The details of a `{variant.account_type}`, as readers see them.",
        account_type=(kind, ...),
        **fields,
    )


_AnyInfo: Any = Annotated[
    Union[tuple(_request_model(variant) for variant in VARIANTS.values())],  # noqa: UP007 - made
    Field(discriminator="account_type"),
]
AccountInfoResource: Any = Annotated[
    Union[tuple(_response_model(variant) for variant in VARIANTS.values())],  # noqa: UP007 - made
    Field(discriminator="account_type"),
]


class PlatformExternalAccountCreate(Request):
    """An account of the platform itself."""

    currency: Currency
    platform_account_id: Name | None = None
    account_info: _AnyInfo


class ExternalAccountCreate(PlatformExternalAccountCreate):
    """An account of a customer, or of the platform when there is no `customerId`."""

    customer_id: CustomerId | None = None
    default_uma_deposit_account: Annotated[bool, Field(strict=True)] = False


class PlatformExternalAccountsQuery(PageQuery):
    """Filters of the list of the platform's own external accounts."""

    currency: Currency | None = None


class ExternalAccountsQuery(PlatformExternalAccountsQuery):
    """Filters of the list of customers' external accounts."""

    customer_id: CustomerId | None = None


class VerifiedData(Response):
    """What the rail said of the account's holder."""

    full_name: str


class ExternalAccountResource(Response):
    """An external account; `customerId` is null when it belongs to the platform."""

    id: ExternalAccountId
    customer_id: CustomerId | None
    status: Status
    platform_account_id: str | None = None
    currency: str
    default_uma_deposit_account: bool
    beneficiary_verification_status: VerificationStatus | None = None
    beneficiary_verified_data: VerifiedData | None = None
    account_info: AccountInfoResource

    @override
    def wire(self) -> dict[str, Any]:
        """Return the JSON object that is sent; `customerId` is always present."""
        fields = super().wire()
        fields.setdefault("customerId", None)
        return fields


# --- what one field alone cannot say -----------------------------------------------------------


def shortcomings(info: AccountInfo) -> Iterator[FieldError]:
    """Yield what is missing or too much in `info`, seen as a whole."""
    yield from _ways(info)
    owner = info.owner
    if isinstance(owner, IndividualBeneficiary):
        for field in info.variant.individual_needs:
            if getattr(owner, field) is None:
                message = f"is required for an individual with a {info.account_type}"
                yield error(f"beneficiary.{field}", message)
    if info.account_type == "CNY_ACCOUNT":
        yield from _cny(info)
    if info.account_type == "INR_ACCOUNT":
        yield from _inr(info)


def error(field: str, message: str) -> FieldError:
    """Return that `field` of the account's details, by its name in the model, has to change."""
    path = [to_camel(part) for part in f"account_info.{field}".removesuffix(".").split(".")]
    return FieldError(field=".".join(path), message=message)


def _ways(info: AccountInfo) -> Iterator[FieldError]:
    ways = info.variant.ways
    complete = [way for way in ways if info.has(way)]
    if len(complete) == 1 or (complete and not info.variant.one_way):
        return
    named = " or ".join(" + ".join(to_camel(field) for field in way) for way in ways)
    quantity = "exactly one" if info.variant.one_way else "at least one"
    yield error("", f"must have {quantity} of {named}")


def _inr(info: Any) -> Iterator[FieldError]:  # noqa: ANN401 - a model made from a row
    if info.account_number is not None and info.rail == "UPI":
        yield error("rail", "must be one of NEFT, RTGS for an accountNumber; UPI takes a vpa")


def _cny(info: Any) -> Iterator[FieldError]:  # noqa: ANN401 - a model made from a row
    wallets = ("AliPay", "WechatPay")
    if info.phone_number is not None and info.account_number is None:
        if info.bank_name not in wallets:
            yield error("bank_name", f"must be one of {', '.join(wallets)} for a payout to a phone")
    elif info.account_number is not None and info.owner.beneficiary_type != "BUSINESS":
        yield error(
            "beneficiary.beneficiary_type",
            "must be BUSINESS: individuals in China are paid by AliPay or WechatPay",
        )
