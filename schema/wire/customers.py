"""Customers: who holds cards."""

import re
from datetime import date
from typing import Annotated, Any, Final, Literal

from email_validator import EmailNotValidError, validate_email
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from schema.wire.common import (
    Country,
    Currency,
    CustomerId,
    Name,
    Request,
    Response,
    ShortName,
    Time,
)

UMA_ADDRESS: Final = re.compile(r"\$[a-z0-9._+-]{1,63}@(?:[a-z0-9-]{1,63}\.)+[a-z]{2,63}(:[0-9]+)?")
"""`$name@domain`; the name has at most 64 characters with its `$`."""

KycStatus = Literal["UNVERIFIED", "PENDING", "APPROVED", "REJECTED", "HOLD"]


def _email(value: str) -> str:
    try:
        # Reserved names such as `.test` are what people try a sandbox with.
        checked = validate_email(value, check_deliverability=False, test_environment=True)
    except EmailNotValidError as error:
        message = f"must be an e-mail address: {error}"
        raise ValueError(message) from None
    return checked.normalized


def _day(value: object) -> object:
    # Without this, Pydantic would read a number as seconds since 1970.
    if isinstance(value, date) or (
        isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value, re.ASCII)
    ):
        return value
    message = "must be a date of the form YYYY-MM-DD"
    raise ValueError(message)


Email = Annotated[Name, AfterValidator(_email)]
PhoneNumber = Annotated[str, Field(strict=True, pattern=r"^\+[1-9][0-9]{1,14}$")]
Day = Annotated[date, BeforeValidator(_day, json_schema_input_type=str)]


class Address(Request):
    """A postal address."""

    line1: Name
    line2: Name | None = None
    city: Name | None = None
    state: Name | None = None
    postal_code: ShortName
    country: Country


class IndividualCreate(Request):
    """A person who becomes a customer.

    `kycStatus` is accepted and has no effect: nobody approves his own customers.
    """

    customer_type: Literal["INDIVIDUAL"]
    platform_customer_id: Name | None = None
    region: Country | None = None
    currencies: Annotated[list[Currency], Field(min_length=1, max_length=50)] | None = None
    email: Email | None = None
    phone_number: PhoneNumber | None = None
    uma_address: Name | None = None
    kyc_status: KycStatus | None = None
    full_name: Name | None = None
    birth_date: Day | None = None
    nationality: Country | None = None
    address: Address | None = None


class BusinessCreate(Request):
    """A company: its fields are not looked at yet."""

    model_config = ConfigDict(extra="ignore")

    customer_type: Literal["BUSINESS"]


CustomerCreate = Annotated[IndividualCreate | BusinessCreate, Field(discriminator="customer_type")]


class CustomerResource(Response):
    """A customer as every reader sees it."""

    id: CustomerId
    customer_type: Literal["INDIVIDUAL", "BUSINESS"]
    platform_customer_id: str
    region: str | None = None
    currencies: list[str]
    email: str | None = None
    phone_number: str | None = None
    uma_address: str
    kyc_status: KycStatus
    full_name: str | None = None
    birth_date: date | None = None
    nationality: str | None = None
    address: dict[str, Any] | None = None
    created_at: Time
    updated_at: Time
    is_deleted: bool
