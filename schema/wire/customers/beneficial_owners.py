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
    Name,
    PageQuery,
    Request,
    Response,
    Time,
)
from cardledger.schema.wire.customers.identity import IdType
from cardledger.schema.wire.customers.people import Address, Day, Email, KycStatus, PhoneNumber

Role = Literal["UBO", "DIRECTOR", "COMPANY_OFFICER", "CONTROL_PERSON", "TRUSTEE", "GENERAL_PARTNER"]

WHOLE: Final = Decimal(100)
_DECIMALS: Final = 4


def _exact(value: object) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        message = "must be a number"
        raise ValueError(message)  # noqa: TRY004 - Pydantic wants a ValueError
    # A float is written as the shortest number that it stands for: the one that was sent.
    said = Decimal(repr(value))
    if not said.is_finite() or not 0 <= said <= WHOLE:
        message = f"must be from 0 to {WHOLE}"
        raise ValueError(message)
    if said != round(said, _DECIMALS):
        message = f"must have at most {_DECIMALS} decimal places"
        raise ValueError(message)
    return said


def _number(value: Decimal) -> float | int:
    # Seven digits at most, so the float is written as the very number that was sent.
    return int(value) if value == value.to_integral_value() else float(value)


Percentage = Annotated[
    Decimal,
    BeforeValidator(_exact),
    PlainSerializer(_number, return_type=float | int, when_used="json"),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 100, "examples": [33.33]}),
]
"""A share of a business, exact to four decimal places; never counted in binary."""


def _once_each(values: list[Any]) -> list[Any]:
    if len(set(values)) != len(values):
        message = "names one twice; send every one once"
        raise ValueError(message)
    return values


Roles = Annotated[list[Role], Field(min_length=1, max_length=6), AfterValidator(_once_each)]


class PersonalInfo(Request):
    """Who an owner is."""

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
    """What to change of who an owner is; what is not there stays."""

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
    """What to change about an owner; in `personalInfo`, too, what is not there stays."""

    roles: Annotated[Roles | None, NOT_NULLABLE] = None
    ownership_percentage: Annotated[Percentage | None, NOT_NULLABLE] = None
    personal_info: Annotated[PersonalInfoUpdate | None, NOT_NULLABLE] = None


class BeneficialOwnersQuery(PageQuery):
    """Whose owners, and which page of them."""

    customer_id: CustomerId


class PersonalInfoResource(Response):
    """Who an owner is; `identifier` is there only where owners themselves are read."""

    first_name: str
    middle_name: str | None = None
    last_name: str
    birth_date: date
    nationality: str
    email: str | None = None
    phone_number: str | None = None
    address: dict[str, Any]
    id_type: IdType
    identifier: str | None = None
    country_of_issuance: str | None = None


class BeneficialOwnerResource(Response):
    """An owner as every reader sees it."""

    id: BeneficialOwnerId
    customer_id: CustomerId
    roles: list[Role]
    ownership_percentage: Percentage
    personal_info: PersonalInfoResource
    kyc_status: KycStatus
    created_at: Time
    updated_at: Time
