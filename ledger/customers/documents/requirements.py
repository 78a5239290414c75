"""Which documents a verification needs, by what they prove."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cardledger.ledger.ports import Applicant
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.documents import DocumentType
from cardledger.schema.wire.customers.verifications import ProblemType, VerificationProblem

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

    Documents of owners prove nothing of the business itself.
    """
    holder = public_id("Customer", applicant.id)
    own = {document.document_type for document in applicant.documents if document.holder == holder}
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
