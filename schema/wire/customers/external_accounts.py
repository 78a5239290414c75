"""External accounts: bank accounts and wallets outside the service, in 45 variants.

The models of requests and responses are made from the rows of `VARIANTS`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import Field, create_model
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from typing_extensions import override

from cardledger.schema.wire.common import (
    Currency,
    CustomerId,
    Documented,
    ExternalAccountId,
    Name,
    PageQuery,
    PaymentRail,
    Request,
    Response,
)
from cardledger.schema.wire.customers.account_variants import (
    VARIANTS,
    Optional,
    Variant,
)
from cardledger.schema.wire.customers.beneficiaries import (
    BeneficiaryResource,
    BusinessBeneficiary,
    IndividualBeneficiary,
)
from cardledger.schema.wire.errors import FieldError

Status = Literal["PENDING", "ACTIVE", "UNDER_REVIEW", "INACTIVE"]

VerificationStatus = Literal[
    "MATCHED",
    "PARTIAL_MATCH",
    "NOT_MATCHED",
    "UNSUPPORTED",
    "CHECKED_BY_RECEIVING_FI",
    "PENDING",
]

# --- models ------------------------------------------------------------------------------------


class AccountInfo(Request):
    """The details that identify an account; every variant has its own fields."""

    variant: ClassVar[Variant]
    account_type: str

    def has(self, way: Sequence[str]) -> bool:
        """Return whether every field of `way` was sent."""
        return all(getattr(self, field) is not None for field in way)

    @property
    def way(self) -> Sequence[str]:
        """The first set of identifying fields that is complete."""
        return next(way for way in self.variant.ways if self.has(way))

    @property
    def identifier(self) -> str:
        """The account number, IBAN, wallet address or other identifier of the account."""
        return str(getattr(self, self.way[0]))

    @property
    def owner(self) -> IndividualBeneficiary | BusinessBeneficiary | None:
        """The beneficiary; None for wallets."""
        return getattr(self, "beneficiary", None)


def _request_field(field: Any) -> Any:  # noqa: ANN401 - types
    return (field.type | None, None) if isinstance(field, Optional) else (field, ...)


def _response_field(field: Any) -> Any:  # noqa: ANN401 - types
    # Only strings: an account that was accepted once stays readable after its rules have changed.
    is_optional = isinstance(field, Optional)
    accepted = field.type if isinstance(field, Optional) else field
    if get_origin(accepted) is Literal:
        shown: Any = Annotated[str, Documented(accepted)]
    else:
        shown = Annotated[str, Field(examples=_examples(accepted))]
    return (shown | None, None) if is_optional else (shown, ...)


def _examples(accepted: Any) -> list[Any] | None:  # noqa: ANN401 - a type
    infos = (metadata for metadata in get_args(accepted) if isinstance(metadata, FieldInfo))
    return next((info.examples for info in infos if info.examples), None)


def _model_name(variant: Variant) -> str:
    camel = to_camel(variant.account_type.lower())
    return camel[0].upper() + camel[1:]


def _request_model(variant: Variant) -> type[AccountInfo]:
    fields = {name: _request_field(field) for name, field in variant.fields.items()}
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
    fields = {name: _response_field(field) for name, field in variant.fields.items()}
    if variant.is_fiat:
        fields["beneficiary"] = (BeneficiaryResource, ...)
        rails = Field(examples=[list(variant.rails)])
        fields["payment_rails"] = (Annotated[list[str], Documented(list[PaymentRail])], rails)
    return create_model(
        f"{_model_name(variant)}Resource",
        __base__=Response,
        __doc__=f"The details of a `{variant.account_type}` in responses.",
        account_type=(kind, ...),
        **fields,
    )


AccountInfoCreate: Any = Annotated[
    Union[tuple(_request_model(variant) for variant in VARIANTS.values())],  # noqa: UP007 - made
    Field(discriminator="account_type"),
]
AccountInfoResource: Any = Annotated[
    Union[tuple(_response_model(variant) for variant in VARIANTS.values())],  # noqa: UP007 - made
    Field(discriminator="account_type"),
]


class PlatformExternalAccountCreate(Request):
    """An external account of the platform itself."""

    currency: Currency
    platform_account_id: Name | None = None
    account_info: AccountInfoCreate


class ExternalAccountCreate(PlatformExternalAccountCreate):
    """An external account of a customer; of the platform without a `customerId`."""

    customer_id: CustomerId | None = None
    default_uma_deposit_account: Annotated[bool, Field(strict=True)] = False


class PlatformExternalAccountsQuery(PageQuery):
    """Filters of the list of the platform's own external accounts."""

    currency: Currency | None = None


class ExternalAccountsQuery(PlatformExternalAccountsQuery):
    """Filters of the list of customers' external accounts."""

    customer_id: CustomerId | None = None


class VerifiedData(Response):
    """The data of the account's holder that the rail returned."""

    full_name: str


def identifier_in(account_type: str, info: Mapping[str, Any]) -> str:
    """Return the identifier of the account with `info`, a stored `accountInfo`."""
    ways = VARIANTS[account_type].ways
    complete = (way for way in ways if all(to_camel(field) in info for field in way))
    return str(info[to_camel(next(complete)[0])])


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


# --- rules across fields -----------------------------------------------------------------------


def shortcomings(info: AccountInfo) -> Iterator[FieldError]:
    """Yield the errors that concern several fields of `info`."""
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
    """Return an error of `field` of `accountInfo`; `field` is its name in the model."""
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
