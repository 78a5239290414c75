"""Customers: who holds cards."""

import re
from datetime import date
from typing import Annotated, Any, Final, Literal

from email_validator import EmailNotValidError, validate_email
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from schema.wire.common import (
    STORABLE,
    Country,
    Currency,
    CustomerId,
    Name,
    PageQuery,
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


CustomerType = Literal["INDIVIDUAL", "BUSINESS"]

Currencies = Annotated[list[Currency], Field(min_length=1, max_length=50)]


class _Create(Request):
    platform_customer_id: Name | None = None
    region: Country | None = None
    currencies: Currencies | None = None
    email: Email | None = None
    phone_number: PhoneNumber | None = None
    uma_address: Name | None = None
    address: Address | None = None


class IndividualCreate(_Create):
    """A person who becomes a customer.

    `kycStatus` is accepted and has no effect: nobody approves his own customers.
    """

    customer_type: Literal["INDIVIDUAL"]
    kyc_status: KycStatus | None = None
    full_name: Name | None = None
    birth_date: Day | None = None
    nationality: Country | None = None


EntityType = Literal[
    "SOLE_PROPRIETORSHIP",
    "PARTNERSHIP",
    "LLC",
    "CORPORATION",
    "S_CORPORATION",
    "NON_PROFIT",
    "OTHER",
]
BusinessType = Literal[
    "AGRICULTURE_FORESTRY_FISHING_AND_HUNTING",
    "MINING_QUARRYING_AND_OIL_AND_GAS_EXTRACTION",
    "UTILITIES",
    "CONSTRUCTION",
    "MANUFACTURING",
    "WHOLESALE_TRADE",
    "RETAIL_TRADE",
    "TRANSPORTATION_AND_WAREHOUSING",
    "INFORMATION",
    "FINANCE_AND_INSURANCE",
    "REAL_ESTATE_AND_RENTAL_AND_LEASING",
    "PROFESSIONAL_SCIENTIFIC_AND_TECHNICAL_SERVICES",
    "MANAGEMENT_OF_COMPANIES_AND_ENTERPRISES",
    "ADMINISTRATIVE_AND_SUPPORT_AND_WASTE_MANAGEMENT_AND_REMEDIATION_SERVICES",
    "EDUCATIONAL_SERVICES",
    "HEALTH_CARE_AND_SOCIAL_ASSISTANCE",
    "ARTS_ENTERTAINMENT_AND_RECREATION",
    "ACCOMMODATION_AND_FOOD_SERVICES",
    "OTHER_SERVICES",
    "PUBLIC_ADMINISTRATION",
]
BusinessPurpose = Literal[
    "CONTRACTOR_PAYOUTS",
    "CREATOR_PAYOUTS",
    "EMPLOYEE_PAYOUTS",
    "MARKETPLACE_SELLER_PAYOUTS",
    "SUPPLIER_PAYMENTS",
    "CROSS_BORDER_B2B",
    "AR_AUTOMATION",
    "AP_AUTOMATION",
    "EMBEDDED_PAYMENTS",
    "PLATFORM_FEE_COLLECTION",
    "P2P_TRANSFERS",
    "CHARITABLE_DONATIONS",
    "OTHER",
]
BusinessSourceOfFunds = Literal[
    "OPERATING_REVENUE",
    "INVESTMENT_INCOME",
    "LOANS",
    "VENTURE_CAPITAL",
    "PERSONAL_SAVINGS",
    "DONATIONS",
    "OTHER",
]
MonthlyCount = Literal[
    "COUNT_UNDER_10",
    "COUNT_10_TO_100",
    "COUNT_100_TO_500",
    "COUNT_500_TO_1000",
    "COUNT_OVER_1000",
]
MonthlyVolume = Literal[
    "VOLUME_UNDER_10K",
    "VOLUME_10K_TO_100K",
    "VOLUME_100K_TO_1M",
    "VOLUME_1M_TO_10M",
    "VOLUME_OVER_10M",
]

Countries = Annotated[list[Country], Field(max_length=250)]
Description = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=500), STORABLE]
ContactName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=250), STORABLE]
NaicsCode = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9]{2,6}$")]


class _BusinessDetails(Request):
    country: Country | None = None
    doing_business_as: Name | None = None
    registration_number: Name | None = None
    entity_type: EntityType | None = None
    countries_of_operation: Countries | None = None
    business_type: BusinessType | None = None
    purpose_of_account: BusinessPurpose | None = None
    purpose_of_account_other_description: Description | None = None
    source_of_funds: Name | None = None
    source_of_funds_categories: (
        Annotated[list[BusinessSourceOfFunds], Field(max_length=7)] | None
    ) = None
    source_of_funds_other_description: Description | None = None
    expected_monthly_transaction_count: MonthlyCount | None = None
    expected_monthly_transaction_volume: MonthlyVolume | None = None
    expected_recipient_jurisdictions: Countries | None = None
    expected_counterparty_countries: Countries | None = None
    naics_code: NaicsCode | None = None
    primary_contact_first_name: ContactName | None = None
    primary_contact_last_name: ContactName | None = None


class BusinessInfo(_BusinessDetails):
    """What a business says of itself."""

    legal_name: Name
    tax_id: Name
    incorporated_on: Day


class BusinessCreate(_Create):
    """A company that becomes a customer."""

    customer_type: Literal["BUSINESS"]
    business_info: BusinessInfo


CustomerCreate = Annotated[IndividualCreate | BusinessCreate, Field(discriminator="customer_type")]


def _stays(value: object) -> object:
    # Defaults are not looked at: only who sends null gets here with None.
    if value is None:
        message = "cannot be taken away; leave it out to keep it"
        raise ValueError(message)
    return value


_STAYS: Final = BeforeValidator(_stays)
"""Metadata of an optional field that null does not take away."""


class _Update(Request):
    currencies: Annotated[Currencies | None, _STAYS] = None
    email: Email | None = None
    phone_number: PhoneNumber | None = None
    uma_address: Annotated[Name | None, _STAYS] = None
    address: Address | None = None


class IndividualUpdate(_Update):
    """What to change about a person; what is not there stays, null takes it away.

    `kycStatus` is accepted and has no effect.
    """

    customer_type: Literal["INDIVIDUAL"]
    kyc_status: KycStatus | None = None
    full_name: Name | None = None
    birth_date: Day | None = None
    nationality: Country | None = None


class BusinessInfoUpdate(_BusinessDetails):
    """What to change of what a business says of itself."""

    legal_name: Annotated[Name | None, _STAYS] = None
    tax_id: Annotated[Name | None, _STAYS] = None
    incorporated_on: Annotated[Day | None, _STAYS] = None


class BusinessUpdate(_Update):
    """What to change about a business; in `businessInfo`, too, what is not there stays."""

    customer_type: Literal["BUSINESS"]
    business_info: Annotated[BusinessInfoUpdate | None, _STAYS] = None


CustomerUpdate = Annotated[IndividualUpdate | BusinessUpdate, Field(discriminator="customer_type")]


class CustomersQuery(PageQuery):
    """Filters of the list of customers; all have to match, times included."""

    platform_customer_id: Name | None = None
    customer_type: CustomerType | None = None
    created_after: Time | None = None
    created_before: Time | None = None
    updated_after: Time | None = None
    updated_before: Time | None = None
    region: Country | None = None
    currency: Currency | None = None
    uma_address: Name | None = None
    is_including_deleted: Literal["true", "false"] = "false"


class CustomerResource(Response):
    """A customer as every reader sees it: a person has a `kycStatus`, a business a `kybStatus`."""

    id: CustomerId
    customer_type: CustomerType
    platform_customer_id: str
    region: str | None = None
    currencies: list[str]
    email: str | None = None
    phone_number: str | None = None
    uma_address: str
    kyc_status: KycStatus | None = None
    kyb_status: KycStatus | None = None
    full_name: str | None = None
    birth_date: date | None = None
    nationality: str | None = None
    address: dict[str, Any] | None = None
    business_info: dict[str, Any] | None = None
    beneficial_owners: list[dict[str, Any]] | None = None
    created_at: Time
    updated_at: Time
    is_deleted: bool
