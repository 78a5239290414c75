"""Which documents a verification needs, by what they prove."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cardledger.ledger.ports import Applicant
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.beneficial_owners import BeneficialOwnerResource
from cardledger.schema.wire.customers.documents import DocumentType
from cardledger.schema.wire.customers.verifications import ProblemType, VerificationProblem

_LARGE_SHARE: Final = 25  # Percent of a business.

IDENTITY: Final[Sequence[DocumentType]] = ("PASSPORT", "DRIVERS_LICENSE", "NATIONAL_ID")

_OF_BUSINESSES: Final[Mapping[ProblemType, Sequence[DocumentType]]] = {
    "MISSING_LEGAL_PRESENCE_DOCUMENT": (
        "CERTIFICATE_OF_INCORPORATION",
        "ARTICLES_OF_INCORPORATION",
        "ARTICLES_OF_ASSOCIATION",
        "STATE_REGISTRY_EXCERPT",
        "STATE_COMPANY_REGISTRY",
        "BUSINESS_LICENSE",
        "PARTNERSHIP_AGREEMENT",
        "TRUST_AGREEMENT",
    ),
    "MISSING_OWNERSHIP_STRUCTURE_DOCUMENT": (
        "SHAREHOLDER_REGISTER",
        "STATE_COMPANY_REGISTRY",
        "PARTNERSHIP_AGREEMENT",
        "TRUST_AGREEMENT",
        "INFORMATION_STATEMENT",
    ),
    "MISSING_CONTROL_STRUCTURE_DOCUMENT": (
        "DIRECTOR_REGISTRY",
        "INCUMBENCY_CERTIFICATE",
        "STATE_COMPANY_REGISTRY",
        "PARTNERSHIP_CONTROL_AGREEMENT",
        "POWER_OF_ATTORNEY",
        "INFORMATION_STATEMENT",
    ),
    "MISSING_PROOF_OF_ADDRESS_DOCUMENT": (
        "PROOF_OF_ADDRESS",
        "BANK_STATEMENT",
        "UTILITY_BILL",
        "ELECTRICITY_BILL",
        "RENT_OR_LEASE_AGREEMENT",
    ),
}

_PROVES: Final[Mapping[ProblemType, str]] = {
    "MISSING_IDENTITY_DOCUMENT": "who the customer is",
    "MISSING_LEGAL_PRESENCE_DOCUMENT": "that the business exists",
    "MISSING_OWNERSHIP_STRUCTURE_DOCUMENT": "who owns the business",
    "MISSING_CONTROL_STRUCTURE_DOCUMENT": "who controls the business",
    "MISSING_PROOF_OF_ADDRESS_DOCUMENT": "the address of the business",
}


def missing_documents(applicant: Applicant) -> Iterator[VerificationProblem]:
    """Yield a problem for each proof that no document of the applicant gives.

    Documents of owners prove nothing of the business itself; each owner of a quarter or more, and
    each person who controls it, needs an identity document of its own.
    """
    holder = public_id("Customer", applicant.id)
    own = _types_of(applicant, holder)
    wanted: Mapping[ProblemType, Sequence[DocumentType]] = (
        _OF_BUSINESSES if applicant.is_business else {"MISSING_IDENTITY_DOCUMENT": IDENTITY}
    )
    for problem, accepted in wanted.items():
        if own.isdisjoint(accepted):
            yield VerificationProblem(
                resource_id=holder,
                type=problem,
                accepted_document_types=list(accepted),
                reason=f"a document that proves {_PROVES[problem]} is required",
            )
    if not applicant.is_business:
        return
    for owner in applicant.owners:
        person = public_id("BeneficialOwner", owner.id)
        if _has_to_identify(owner) and _types_of(applicant, person).isdisjoint(IDENTITY):
            yield VerificationProblem(
                resource_id=person,
                type="MISSING_IDENTITY_DOCUMENT",
                accepted_document_types=list(IDENTITY),
                reason="a document that proves who the owner or control person is is required",
            )


def _types_of(applicant: Applicant, holder: str) -> set[DocumentType]:
    return {document.document_type for document in applicant.documents if document.holder == holder}


def _has_to_identify(owner: BeneficialOwnerResource) -> bool:
    is_large = "UBO" in owner.roles and owner.ownership_percentage >= _LARGE_SHARE
    return is_large or "CONTROL_PERSON" in owner.roles
