"""Customers: individuals and businesses, who hold cards and accounts."""

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, StringConstraints

from cardledger.schema.wire.common import (
    NOT_NULLABLE,
    STORABLE,
    Country,
    Currency,
    CustomerId,
    Day,
    Documented,
    Name,
    PageQuery,
    Request,
    Response,
    Time,
)
from cardledger.schema.wire.customers.authentication import ContactVerification
from cardledger.schema.wire.customers.beneficial_owners import BeneficialOwnerResource
from cardledger.schema.wire.customers.identity import PersonIdType
from cardledger.schema.wire.customers.people import Address, Email, KycStatus, PhoneNumber
from cardledger.schema.wire.errors import FieldError

UMA_ADDRESS: Final = re.compile(r"\$[a-z0-9._+-]{1,63}@(?:[a-z0-9-]{1,63}\.)+[a-z]{2,63}(:[0-9]+)?")
"""`$name@domain`; the name has at most 64 characters with its `$`."""

CustomerType = Literal["INDIVIDUAL", "BUSINESS"]

Currencies = Annotated[list[Currency], Field(min_length=1, max_length=50)]


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
Purpose = Literal[
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

IndividualSourceOfFunds = Literal[
    "SALARY",
    "SELF_EMPLOYMENT_INCOME",
    "INVESTMENT_INCOME",
    "PENSION",
    "RENTAL_INCOME",
    "GIFT",
    "INHERITANCE",
    "LOAN",
    "SAVINGS",
    "SALE_OF_ASSETS",
    "OTHER",
]
SourceOfWealth = Literal[
    "SALARY",
    "BUSINESS_INCOME",
    "INVESTMENTS",
    "INHERITANCE",
    "PROPERTY_SALE",
    "GIFT",
    "RETIREMENT",
    "SAVINGS",
    "OTHER",
]
AnnualIncome = Literal["UNDER_50K", "RANGE_50K_100K", "RANGE_100K_250K", "RANGE_250K_1M", "OVER_1M"]
NetWorth = Literal[
    "UNDER_100K",
    "RANGE_100K_500K",
    "RANGE_500K_1M",
    "RANGE_1M_5M",
    "RANGE_5M_25M",
    "OVER_25M",
]
PepStatus = Literal["NONE", "DOMESTIC", "FOREIGN", "HIO", "FAMILY_OR_ASSOCIATE"]

Countries = Annotated[list[Country], Field(max_length=250)]
Description = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=500), STORABLE]
ContactName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=250), STORABLE]
NaicsCode = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9]{2,6}$")]


class EndUserTermsConsent(Request):
    """When and how a customer accepted the terms; kept as evidence, never required."""

    accepted_at: Time
    ip_address: Annotated[
        str, StringConstraints(strict=True, min_length=1, max_length=45), STORABLE
    ]
    terms_version: Name
    acceptance_method: Literal["CHECKBOX", "CLICK_TO_ACCEPT"]


class DueDiligence(Request):
    """An individual's statements about the money, for enhanced due diligence."""

    source_of_funds_categories: (
        Annotated[list[IndividualSourceOfFunds], Field(max_length=11)] | None
    ) = None
    source_of_funds_other_description: Description | None = None
    source_of_wealth_categories: Annotated[list[SourceOfWealth], Field(max_length=9)] | None = None
    source_of_wealth_other_description: Description | None = None
    purpose_of_account: Purpose | None = None
    purpose_of_account_other_description: Description | None = None
    expected_monthly_transaction_count: MonthlyCount | None = None
    expected_monthly_transaction_volume: MonthlyVolume | None = None
    annual_income_range: AnnualIncome | None = None
    net_worth_range: NetWorth | None = None
    pep_status: PepStatus | None = None


class _PersonDetails(DueDiligence):
    full_name: Name | None = None
    birth_date: Day | None = None
    nationality: Country | None = None
    id_type: PersonIdType | None = None
    identifier: Name | None = None
    country_of_issuance: Country | None = None


class _Create(Request):
    platform_customer_id: Name | None = None
    region: Country | None = None
    currencies: Currencies | None = None
    email: Email | None = None
    phone_number: PhoneNumber | None = None
    uma_address: Name | None = None
    address: Address | None = None
    end_user_terms_consent: EndUserTermsConsent | None = None


class IndividualCreate(_Create, _PersonDetails):
    """An individual who becomes a customer.

    `kycStatus` is accepted and has no effect: only a verification sets it.
    """

    customer_type: Literal["INDIVIDUAL"]
    kyc_status: KycStatus | None = None


class _BusinessDetails(Request):
    country: Country | None = None
    doing_business_as: Name | None = None
    registration_number: Name | None = None
    entity_type: EntityType | None = None
    countries_of_operation: Countries | None = None
    business_type: BusinessType | None = None
    purpose_of_account: Purpose | None = None
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
    """The details of a business."""

    legal_name: Name
    tax_id: Name
    incorporated_on: Day


class BusinessCreate(_Create):
    """A business that becomes a customer."""

    customer_type: Literal["BUSINESS"]
    business_info: BusinessInfo


class KnownBusinessInfo(_BusinessDetails):
    """The details of a business, of which some may not be known yet."""

    legal_name: Name
    tax_id: Name | None = None
    incorporated_on: Day | None = None


class UploadedBusiness(_Create):
    """A business in a file of customers, which has fewer columns than a body has fields."""

    customer_type: Literal["BUSINESS"]
    business_info: KnownBusinessInfo


CustomerCreate = Annotated[IndividualCreate | BusinessCreate, Field(discriminator="customer_type")]


class _Update(Request):
    currencies: Annotated[Currencies | None, NOT_NULLABLE] = None
    email: Email | None = None
    phone_number: PhoneNumber | None = None
    uma_address: Annotated[Name | None, NOT_NULLABLE] = None
    address: Address | None = None
    end_user_terms_consent: Annotated[EndUserTermsConsent | None, NOT_NULLABLE] = None


class IndividualUpdate(_Update, _PersonDetails):
    """A change of an individual; absent fields keep their value, null removes it.

    `kycStatus` is accepted and has no effect.
    """

    customer_type: Literal["INDIVIDUAL"]
    kyc_status: KycStatus | None = None


class BusinessInfoUpdate(_BusinessDetails):
    """A change of the details of a business; absent fields keep their value, null removes it."""

    legal_name: Annotated[Name | None, NOT_NULLABLE] = None
    tax_id: Annotated[Name | None, NOT_NULLABLE] = None
    incorporated_on: Annotated[Day | None, NOT_NULLABLE] = None


class BusinessUpdate(_Update):
    """A change of a business; absent fields keep their value, also in `businessInfo`."""

    customer_type: Literal["BUSINESS"]
    business_info: Annotated[BusinessInfoUpdate | None, NOT_NULLABLE] = None


CustomerUpdate = Annotated[IndividualUpdate | BusinessUpdate, Field(discriminator="customer_type")]


class CustomersQuery(PageQuery):
    """Filters of the list of customers; all must match, times are inclusive."""

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


class _CustomerResource(Response):
    """The fields that individuals and businesses have in common."""

    id: CustomerId
    platform_customer_id: str
    region: str | None = None
    currencies: list[str]
    email: str | None = None
    phone_number: str | None = None
    uma_address: str
    address: Annotated[dict[str, Any], Documented(Address)] | None = None
    end_user_terms_consent: Annotated[dict[str, Any], Documented(EndUserTermsConsent)] | None = None
    contact_verification: ContactVerification | None = None
    created_at: Time
    updated_at: Time
    is_deleted: bool


class IndividualCustomerResource(_CustomerResource):
    """A customer who is an individual; the `identifier` is write-only."""

    customer_type: Literal["INDIVIDUAL"]
    kyc_status: KycStatus | None = None
    full_name: str | None = None
    birth_date: date | None = None
    nationality: str | None = None
    id_type: PersonIdType | None = None
    country_of_issuance: str | None = None
    source_of_funds_categories: (
        Annotated[list[str], Documented(list[IndividualSourceOfFunds])] | None
    ) = None
    source_of_funds_other_description: str | None = None
    source_of_wealth_categories: Annotated[list[str], Documented(list[SourceOfWealth])] | None = (
        None
    )
    source_of_wealth_other_description: str | None = None
    purpose_of_account: Annotated[str, Documented(Purpose)] | None = None
    purpose_of_account_other_description: str | None = None
    expected_monthly_transaction_count: Annotated[str, Documented(MonthlyCount)] | None = None
    expected_monthly_transaction_volume: Annotated[str, Documented(MonthlyVolume)] | None = None
    annual_income_range: Annotated[str, Documented(AnnualIncome)] | None = None
    net_worth_range: Annotated[str, Documented(NetWorth)] | None = None
    pep_status: Annotated[str, Documented(PepStatus)] | None = None


class BusinessCustomerResource(_CustomerResource):
    """A customer that is a business, with its beneficial owners."""

    customer_type: Literal["BUSINESS"]
    kyb_status: KycStatus | None = None
    business_info: Annotated[dict[str, Any], Documented(KnownBusinessInfo)] | None = None
    beneficial_owners: list[BeneficialOwnerResource] | None = None


CustomerResource: TypeAlias = Annotated[
    IndividualCustomerResource | BusinessCustomerResource, Field(discriminator="customer_type")
]
"""A customer of either type."""


# --- rules across fields ----------------------------------------------------------------------

CONTACT_REGIONS: Final = frozenset(
    {"AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU", "IE"}
    | {"IS", "IT", "LI", "LT", "LU", "LV", "MT", "NL", "NO", "PL", "PT", "RO", "SE", "SI", "SK"}
)
"""The European Economic Area: payments there are confirmed by e-mail and phone."""

_DESCRIBED: Final = {
    "sourceOfFundsCategories": "sourceOfFundsOtherDescription",
    "sourceOfWealthCategories": "sourceOfWealthOtherDescription",
    "purposeOfAccount": "purposeOfAccountOtherDescription",
}
"""Fields that may be `OTHER`, and the field that then describes it."""


def missing_contacts(
    *, region: str | None, email: str | None, phone_number: str | None
) -> Iterator[FieldError]:
    """Yield the contact details that are missing where the customer's region requires them."""
    if region in CONTACT_REGIONS:
        for field, contact in {"email": email, "phoneNumber": phone_number}.items():
            if contact is None:
                yield FieldError(field=field, message=f"is required for a customer in {region}")


def undescribed(fields: Mapping[str, Any], *, within: str = "") -> Iterator[FieldError]:
    """Yield the descriptions of `OTHER` that are missing, or that have no `OTHER`."""
    for choice, description in _DESCRIBED.items():
        if _has_other(fields, choice) and fields.get(description) is None:
            message = f"is required with OTHER in {choice}"
            yield FieldError(field=within + description, message=message)
        if not _has_other(fields, choice) and fields.get(description) is not None:
            message = f"is allowed only with OTHER in {choice}"
            yield FieldError(field=within + description, message=message)


def merged(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `before` with `changes` applied: None removes a field, absent fields stay.

    A description of `OTHER` is removed with its choice, unless `changes` names it.
    """
    fields = {name: value for name, value in {**before, **changes}.items() if value is not None}
    for choice, description in _DESCRIBED.items():
        if description not in changes and not _has_other(fields, choice):
            fields.pop(description, None)
    return fields


def _has_other(fields: Mapping[str, Any], choice: str) -> bool:
    chosen = fields.get(choice)
    return "OTHER" in ([chosen] if isinstance(chosen, str) else chosen or ())
