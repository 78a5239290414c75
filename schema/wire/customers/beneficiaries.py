"""Beneficiaries: the owners of external accounts."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from cardledger.schema.wire.common import (
    Country,
    Day,
    Documented,
    Name,
    Request,
    Response,
    ShortName,
)
from cardledger.schema.wire.customers.people import Address, Email, PhoneNumber

DocumentType = Literal["CC", "CE", "TI", "NIT", "PP"]


class Beneficiary(Request):
    """The owner of an external account: the fields of both types."""

    email: Email | None = None
    phone_number: PhoneNumber | None = None
    country_of_residence: Country | None = None
    address: Address | None = None


class IndividualBeneficiary(Beneficiary):
    """An individual who owns the account."""

    beneficiary_type: Literal["INDIVIDUAL"]
    full_name: Name
    birth_date: Day | None = None
    nationality: Country | None = None


class CadIndividualBeneficiary(IndividualBeneficiary):
    """An individual with an account in Canada."""

    registration_number: ShortName | None = None


class CopIndividualBeneficiary(IndividualBeneficiary):
    """An individual with an account in Colombia."""

    document_type: DocumentType | None = None
    document_number: Annotated[ShortName, Field(max_length=50)] | None = None


class BusinessBeneficiary(Beneficiary):
    """A business that owns the account."""

    beneficiary_type: Literal["BUSINESS"]
    legal_name: Name
    registration_number: ShortName | None = None
    tax_id: ShortName | None = None


BeneficiaryCreate: TypeAlias = Annotated[
    IndividualBeneficiary | BusinessBeneficiary, Field(discriminator="beneficiary_type")
]
"""The owner of an external account to create."""


class _BeneficiaryResource(Response):
    registration_number: str | None = None
    email: str | None = None
    phone_number: str | None = None
    country_of_residence: str | None = None
    address: Annotated[dict[str, Any], Documented(Address)] | None = None


class IndividualBeneficiaryResource(_BeneficiaryResource):
    """An individual who owns the account: the fields that were sent."""

    beneficiary_type: Literal["INDIVIDUAL"]
    full_name: str
    birth_date: str | None = None
    nationality: str | None = None
    document_type: Annotated[str, Documented(DocumentType)] | None = None
    document_number: str | None = None


class BusinessBeneficiaryResource(_BeneficiaryResource):
    """A business that owns the account: the fields that were sent."""

    beneficiary_type: Literal["BUSINESS"]
    legal_name: str
    tax_id: str | None = None


BeneficiaryResource: TypeAlias = Annotated[
    IndividualBeneficiaryResource | BusinessBeneficiaryResource,
    Field(discriminator="beneficiary_type"),
]
"""The owner of an external account."""
