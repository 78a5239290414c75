"""Beneficial owners: the people who own or control a business."""

from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from cardledger.schema.wire.common import (
    NOT_NULLABLE,
    BeneficialOwnerId,
    Country,
    CustomerId,
    Day,
    Documented,
    Name,
    PageQuery,
    Request,
    Response,
    Time,
)
from cardledger.schema.wire.customers.identity import IdType
from cardledger.schema.wire.customers.people import Address, Email, KycStatus, PhoneNumber

Role = Literal["UBO", "DIRECTOR", "COMPANY_OFFICER", "CONTROL_PERSON", "TRUSTEE", "GENERAL_PARTNER"]

WHOLE: Final = Decimal(100)
_DECIMALS: Final = 4


def _exact(value: object) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        message = "must be a number"
        raise ValueError(message)  # noqa: TRY004 - Pydantic wants a ValueError
    # `repr` of a float is the shortest number that it represents: the one that was sent.
    share = Decimal(repr(value))
    if not share.is_finite() or not 0 <= share <= WHOLE:
        message = f"must be from 0 to {WHOLE}"
        raise ValueError(message)
    if share != round(share, _DECIMALS):
        message = f"must have at most {_DECIMALS} decimal places"
        raise ValueError(message)
    return share


def _number(value: Decimal) -> float | int:
    # At most seven digits, so the float is written as exactly the number that was sent.
    return int(value) if value == value.to_integral_value() else float(value)


Percentage = Annotated[
    Decimal,
    BeforeValidator(_exact),
    PlainSerializer(_number, return_type=float | int, when_used="json"),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 100, "examples": [33.33]}),
]
"""A share of a business, exact to four decimal places: a decimal, not a float."""


def _once_each(values: list[Any]) -> list[Any]:
    if len(set(values)) != len(values):
        message = "has a duplicate; send each value once"
        raise ValueError(message)
    return values


Roles = Annotated[list[Role], Field(min_length=1, max_length=6), AfterValidator(_once_each)]


class PersonalInfo(Request):
    """The personal details of a beneficial owner."""

    first_name: Name
    middle_name: Name | None = None
    last_name: Name
    birth_date: Day
    nationality: Country
    email: Email | None = None
    phone_number: PhoneNumber | None = None
    address: Address
    id_type: IdType
    identifier: Name
    country_of_issuance: Country | None = None


class PersonalInfoUpdate(Request):
    """A change of personal details; absent fields keep their value."""

    first_name: Annotated[Name | None, NOT_NULLABLE] = None
    middle_name: Name | None = None
    last_name: Annotated[Name | None, NOT_NULLABLE] = None
    birth_date: Annotated[Day | None, NOT_NULLABLE] = None
    nationality: Annotated[Country | None, NOT_NULLABLE] = None
    email: Email | None = None
    phone_number: PhoneNumber | None = None
    address: Annotated[Address | None, NOT_NULLABLE] = None
    id_type: Annotated[IdType | None, NOT_NULLABLE] = None
    identifier: Annotated[Name | None, NOT_NULLABLE] = None
    country_of_issuance: Country | None = None


class BeneficialOwnerCreate(Request):
    """A person who owns or controls the business `customerId`."""

    customer_id: CustomerId
    roles: Roles
    ownership_percentage: Percentage
    personal_info: PersonalInfo


class BeneficialOwnerUpdate(Request):
    """A change of an owner; absent fields keep their value, also in `personalInfo`."""

    roles: Annotated[Roles | None, NOT_NULLABLE] = None
    ownership_percentage: Annotated[Percentage | None, NOT_NULLABLE] = None
    personal_info: Annotated[PersonalInfoUpdate | None, NOT_NULLABLE] = None


class BeneficialOwnersQuery(PageQuery):
    """The business whose owners are listed, and the page."""

    customer_id: CustomerId


class PersonalInfoResource(Response):
    """The personal details of an owner; `identifier` is absent in a customer's response."""

    first_name: str
    middle_name: str | None = None
    last_name: str
    birth_date: date
    nationality: str
    email: str | None = None
    phone_number: str | None = None
    address: Annotated[dict[str, Any], Documented(Address)]
    id_type: IdType
    identifier: str | None = None
    country_of_issuance: str | None = None


class BeneficialOwnerResource(Response):
    """A beneficial owner of a business."""

    id: BeneficialOwnerId
    customer_id: CustomerId
    roles: list[Role]
    ownership_percentage: Percentage
    personal_info: PersonalInfoResource
    kyc_status: KycStatus
    created_at: Time
    updated_at: Time
