"""The sandbox's identity verifier: endings of names and registration numbers choose its answers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from typing_extensions import override

from cardledger.ledger.ports import (
    Applicant,
    Evidence,
    IdentityVerifier,
    Liveness,
    VerificationResult,
)
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.documents import Fault
from cardledger.schema.wire.customers.people import KycStatus
from cardledger.schema.wire.customers.verifications import ProblemType, VerificationProblem

_INDIVIDUALS: Final[Mapping[str, KycStatus]] = {
    "001": "PENDING",
    "002": "REJECTED",
    "003": "UNVERIFIED",
}
"""Endings of an individual's full name, at creation."""

_OWNERS: Final[Mapping[str, KycStatus]] = {"001": "PENDING", "002": "REJECTED"}
"""Endings of a beneficial owner's last name."""

# Endings of an individual's full name, or of a business's registration number, when verified.
_MANUAL_REVIEW: Final = "001"
_REJECTED: Final = "002"
_POOR_DOCUMENT: Final = "003"

_AT_UPLOAD: Final[Mapping[str, Fault]] = {
    "201": Fault.LOW_QUALITY,
    "202": Fault.DATA_MISMATCH,
    "203": Fault.EXPIRED,
    "204": Fault.SUSPECTED_FRAUD,
    "205": Fault.UNSUITABLE_DOCUMENT,
    "206": Fault.INCOMPLETE,
}
"""Endings of a document's number, when it is uploaded."""

_AT_VERIFICATION: Final[Mapping[str, tuple[ProblemType, str]]] = {
    "301": ("POOR_QUALITY_DOCUMENT", "the document cannot be read"),
    "302": ("INVALID_DOCUMENT", "the document does not match the customer's data"),
    "303": ("EXPIRED_DOCUMENT", "the document has expired"),
    "304": ("SUSPECTED_FRAUD_DOCUMENT", "the document may not be genuine"),
    "305": ("WRONG_DOCUMENT_TYPE", "the document is not of the type that was stated"),
    "306": ("INCOMPLETE_DOCUMENT", "parts of the document are missing"),
}
"""Endings of a document's number, when its holder is verified."""

_IDENTITY_DOCUMENTS: Final = ["PASSPORT", "DRIVERS_LICENSE", "NATIONAL_ID"]


class SandboxIdentityVerifier(IdentityVerifier):
    """Approves every applicant, unless a suffix says otherwise."""

    @override
    def initial_kyc_status(self, full_name: str | None) -> KycStatus:
        return _INDIVIDUALS.get((full_name or "")[-3:], "APPROVED")

    @override
    def verify(
        self, applicant: Applicant, problems: Sequence[VerificationProblem]
    ) -> VerificationResult:
        """Return the result for `applicant`; the first rule that applies decides.

        The registration number decides about a business even where fields are missing, unless
        its ending requests the ordinary way.
        """
        suffix = _suffix(applicant)
        if suffix == _REJECTED:
            return VerificationResult(status="REJECTED")
        is_ordinary = suffix in {_MANUAL_REVIEW, _POOR_DOCUMENT}
        if applicant.is_business and not is_ordinary:
            return VerificationResult(status="APPROVED")
        if found := [*problems, *_document_problems(applicant.documents)]:
            return VerificationResult(status="RESOLVE_ERRORS", problems=found)
        if suffix == _POOR_DOCUMENT and not applicant.is_business:
            problem = _unreadable_document(applicant)
            return VerificationResult(status="RESOLVE_ERRORS", problems=[problem])
        return VerificationResult(status="PENDING_MANUAL_REVIEW" if is_ordinary else "APPROVED")

    @override
    def check_liveness(self, customer_id: Id) -> Liveness:
        return Liveness(status="LIVENESS_PASSED")

    @override
    def document_fault(self, document_number: str | None) -> Fault | None:
        return _AT_UPLOAD.get((document_number or "")[-3:])

    @override
    def owner_kyc_status(self, last_name: str) -> KycStatus:
        return _OWNERS.get(last_name[-3:], "APPROVED")


def _suffix(applicant: Applicant) -> str:
    if applicant.is_business:
        info = applicant.fields.get("businessInfo") or {}
        return str(info.get("registrationNumber") or "")[-3:]
    return str(applicant.fields.get("fullName") or "")[-3:]


def _unreadable_document(applicant: Applicant) -> VerificationProblem:
    return VerificationProblem(
        resource_id=public_id("Customer", applicant.id),
        type="POOR_QUALITY_DOCUMENT",
        reason="the document cannot be read",
        accepted_document_types=_IDENTITY_DOCUMENTS,
    )


def _document_problems(documents: Sequence[Evidence]) -> Iterator[VerificationProblem]:
    for document in documents:
        found = _AT_VERIFICATION.get((document.document_number or "")[-3:])
        if found is not None:
            kind, reason = found
            yield VerificationProblem(resource_id=document.id, type=kind, reason=reason)
