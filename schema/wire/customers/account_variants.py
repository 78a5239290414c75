"""The 45 variants of external accounts, as one table.

A row of `VARIANTS` has the fields of a variant, its payment rails and the sets of fields that
identify an account. Models, checks, documentation and tests are made from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from cardledger.schema.wire.common import STORABLE
from cardledger.schema.wire.customers.beneficiaries import (
    CadIndividualBeneficiary,
    CopIndividualBeneficiary,
    IndividualBeneficiary,
)
from cardledger.schema.wire.iso4217 import CODES

# --- fields -----------------------------------------------------------------------------------


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
    """The type of an optional field."""

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
    """One type of account: its fields, rails and identifying sets of fields.

    Each set in `ways` identifies an account by itself; its first field is the identifier, whose
    suffix the sandbox interprets. Two accounts with equal `ways` are the same account.
    """

    account_type: str
    rails: Sequence[str]
    ways: Sequence[Sequence[str]]
    fields: Mapping[str, Any]
    currencies: frozenset[str] | None  # None: any, because tickers are an open set.
    one_way: bool = False  # Exactly one of `ways` is required, not at least one.
    individual: type[IndividualBeneficiary] = IndividualBeneficiary
    individual_needs: Sequence[str] = ()
    alias: str | None = None  # Another name in responses.

    @property
    def is_fiat(self) -> bool:
        """Whether the account has a beneficiary; wallets have none."""
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
    """Return a mobile-money wallet: a provider and a phone number."""
    way = " ".join(["phone_number", "provider", *fields])
    return _fiat(currency, _MOBILE, way, phone_number=phone, provider=NAME, **fields)


def _swift_code(currency: str, rails: Sequence[str] = _BANK, name: Any = NAME) -> Variant:  # noqa: ANN401 - a type
    """Return an account that is identified by its number and the BIC of its bank."""
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
