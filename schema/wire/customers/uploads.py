"""Uploads of many customers at once, as a file of comma-separated values."""

from typing import Annotated, Any, Literal

from pydantic import Field

from cardledger.schema.wire.common import JobId, Request, Response, Time
from cardledger.schema.wire.customers.customers import IndividualCreate, UploadedBusiness
from cardledger.schema.wire.uploads import UploadedFile

UploadStatus = Literal["PENDING", "PROCESSING", "COMPLETED", "FAILED"]

UploadedCustomer = Annotated[
    IndividualCreate | UploadedBusiness, Field(discriminator="customer_type")
]
"""A row of a file, in the form of the body of `POST /customers`."""


class CustomerUploadCreate(Request):
    """A file with one customer a row."""

    file: UploadedFile


class CustomerUploadAccepted(Response):
    """The job that creates the customers."""

    job_id: JobId
    status: UploadStatus


class UploadProgress(Response):
    """How many rows there are, and what became of them."""

    total: int
    processed: int
    successful: int
    failed: int


class UploadError(Response):
    """Why a row made no customer, or why the file could not be read."""

    correlation_id: str
    code: str
    message: str
    details: dict[str, Any] | None = None


class CustomerUploadResource(Response):
    """A job that creates customers; `errors` has the first ones."""

    id: JobId
    status: UploadStatus
    progress: UploadProgress
    errors: list[UploadError]
    completed_at: Time | None = None
