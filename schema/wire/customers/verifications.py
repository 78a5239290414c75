"""Verifications of customers (KYC and KYB)."""

from typing import Annotated, Any, Literal

from cardledger.schema.wire.common import (
    CustomerId,
    Documented,
    PageQuery,
    Request,
    Response,
    Time,
    VerificationId,
)

VerificationStatus = Literal[
    "READY_FOR_VERIFICATION",
    "RESOLVE_ERRORS",
    "IN_PROGRESS",
    "PENDING_MANUAL_REVIEW",
    "APPROVED",
    "REJECTED",
]

ProblemType = Literal[
    "MISSING_FIELD",
    "MISSING_BENEFICIAL_OWNER",
    "MISSING_CONTROL_PERSON",
    "MISSING_IDENTITY_DOCUMENT",
    "MISSING_LEGAL_PRESENCE_DOCUMENT",
    "MISSING_OWNERSHIP_STRUCTURE_DOCUMENT",
    "MISSING_CONTROL_STRUCTURE_DOCUMENT",
    "MISSING_PROOF_OF_ADDRESS_DOCUMENT",
    "POOR_QUALITY_DOCUMENT",
    "INVALID_DOCUMENT",
    "EXPIRED_DOCUMENT",
    "SUSPECTED_FRAUD_DOCUMENT",
    "WRONG_DOCUMENT_TYPE",
    "INCOMPLETE_DOCUMENT",
]
"""The problems that are detected; the interface has more."""


class VerificationCreate(Request):
    """The customer to verify."""

    customer_id: CustomerId


class VerificationsQuery(PageQuery):
    """Filters of the list of verifications; both must match."""

    customer_id: CustomerId | None = None
    verification_status: VerificationStatus | None = None


class VerificationProblem(Response):
    """A problem to correct before the customer can be verified."""

    resource_id: str
    type: ProblemType
    field: str | None = None
    accepted_document_types: list[str] | None = None
    reason: str


class VerificationResource(Response):
    """A verification of a customer; `errors` is not empty with `RESOLVE_ERRORS`."""

    id: VerificationId
    customer_id: CustomerId
    verification_status: VerificationStatus
    errors: Annotated[list[Any], Documented(list[VerificationProblem])]
    created_at: Time
    updated_at: Time
