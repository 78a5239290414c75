"""Documents: evidence for the verification of customers and beneficial owners."""

from enum import StrEnum
from typing import Literal

from cardledger.schema.wire.common import (
    Country,
    DocumentId,
    HolderId,
    Name,
    PageQuery,
    Request,
    Response,
    Time,
)
from cardledger.schema.wire.uploads import UploadedFile

DocumentType = Literal[
    "PASSPORT",
    "DRIVERS_LICENSE",
    "NATIONAL_ID",
    "PROOF_OF_ADDRESS",
    "BANK_STATEMENT",
    "TAX_RETURN",
    "CERTIFICATE_OF_INCORPORATION",
    "ARTICLES_OF_INCORPORATION",
    "ARTICLES_OF_ASSOCIATION",
    "STATE_REGISTRY_EXCERPT",
    "GOOD_STANDING_CERTIFICATE",
    "INFORMATION_STATEMENT",
    "INCUMBENCY_CERTIFICATE",
    "BUSINESS_LICENSE",
    "SHAREHOLDER_REGISTER",
    "POWER_OF_ATTORNEY",
    "UTILITY_BILL",
    "ELECTRICITY_BILL",
    "RENT_OR_LEASE_AGREEMENT",
    "DIRECTOR_REGISTRY",
    "TRUST_AGREEMENT",
    "STATE_COMPANY_REGISTRY",
    "PARTNERSHIP_CONTROL_AGREEMENT",
    "PARTNERSHIP_AGREEMENT",
    "SELFIE",
    "OTHER",
]

Side = Literal["FRONT", "BACK"]


class Fault(StrEnum):
    """What is wrong with a document, by the codes of the interface."""

    LOW_QUALITY = "LOW_QUALITY"
    DATA_MISMATCH = "DATA_MISMATCH"
    EXPIRED = "EXPIRED"
    SUSPECTED_FRAUD = "SUSPECTED_FRAUD"
    UNSUITABLE_DOCUMENT = "UNSUITABLE_DOCUMENT"
    INCOMPLETE = "INCOMPLETE"


class DocumentReplace(Request):
    """A file, and what it shows."""

    file: UploadedFile
    document_type: DocumentType
    side: Side | None = None
    country: Country
    document_number: Name | None = None
    issuing_authority: Name | None = None


class DocumentCreate(DocumentReplace):
    """A file of a customer or of a beneficial owner, and what it shows."""

    document_holder: HolderId


class DocumentsQuery(PageQuery):
    """The filter of the list of documents."""

    document_holder: HolderId | None = None


class DocumentResource(Response):
    """A document, without its file: no operation returns a file."""

    id: DocumentId
    document_holder: str
    document_type: DocumentType
    side: Side | None = None
    country: str
    document_number: str | None = None
    issuing_authority: str | None = None
    file_name: str
    created_at: Time
    updated_at: Time
