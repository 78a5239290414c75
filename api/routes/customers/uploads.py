"""Many customers at once, from a file of comma-separated values."""

from typing import Final

from fastapi import Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.errors import not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, RequestContext, services_of
from cardledger.api.http.responses import capped, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.time_limit import untimed
from cardledger.api.uploads.forms import form_with_file, prepared
from cardledger.api.uploads.limits import CUSTOMERS_FILE
from cardledger.api.uploads.multipart import ReceivedFile
from cardledger.ledger.customers.uploads import csv_files
from cardledger.ledger.customers.uploads import registry as uploads
from cardledger.ledger.customers.uploads.csv_files import ParsedFile, UnreadableError
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.common import JobId
from cardledger.schema.wire.customers.uploads import (
    CustomerUploadAccepted,
    CustomerUploadCreate,
    CustomerUploadResource,
)
from cardledger.schema.wire.errors import Code

_ACCEPTED: Final = 202

router = guarded_router("Customers")


async def _check_room(request: Request, connection: AsyncConnection, _: int) -> None:
    call: RequestContext = request.state.call
    with capped():
        await uploads.check_room(connection, platform_id=call.platform_id)


async def _read(request: Request, file: ReceivedFile) -> ParsedFile | UnreadableError:
    """Return what a file has, or why it cannot be read: then the job fails."""
    turns = services_of(request).loop_turns
    try:
        with untimed(request.scope):
            return await turns.run(csv_files.parse(file.content))
    except UnreadableError as error:
        return UnreadableError(str(error))  # Without a traceback, whose frames hold the file.


_FORM: Final = form_with_file(max_file=CUSTOMERS_FILE, prepare=_read, check_room=_check_room)


@router.post(
    "/customers/bulk/csv",
    status_code=_ACCEPTED,
    response_model=CustomerUploadAccepted,
    responses=error_responses(Code.CONFLICT),
)
@requires(Permission.MANAGE, form=_FORM)
async def upload_customers(
    body: CustomerUploadCreate,  # noqa: ARG001 - its file is prepared
    request: Request,
    call: PlatformCall,
) -> Response:
    """Create a customer for each row of a file; the response names the job that does it.

    The file is UTF-8, with commas and a header: `platformCustomerId`, `umaAddress` (cells may be
    empty) and `customerType` always; `fullName`, `birthDate` of individuals; `businessLegalName`,
    `businessRegistrationNumber`, `businessTaxId` of businesses; `addressLine1`, `addressLine2`,
    `city`, `state`, `postalCode`, `country`, `email`; `platformAccountId` and `description` are
    read and not kept. A row makes a customer by the rules of `POST /customers`, or an error. A row
    has 16,384 characters at most, a file 100,000 rows, 1,000,000 lines and 32 MiB. A platform has 5
    unfinished jobs at most: one more is 409 `CONFLICT`. A file that cannot be read makes a job that
    is `FAILED`.
    """
    with capped():
        async with call.writing() as connection:
            created = await uploads.create(
                connection, platform_id=call.platform_id, file=prepared(request), at=call.now()
            )
    call.services.customer_uploads.wake()
    return resource_response(
        CustomerUploadAccepted(job_id=created.id, status=created.status), _ACCEPTED
    )


@router.get("/customers/bulk/jobs/{job_id}", response_model=CustomerUploadResource)
@requires(Permission.VIEW)
async def get_customer_upload(job_id: JobId, call: PlatformCall) -> Response:
    """Return a job, with its progress and its first 100 errors.

    It is kept for 90 days after its end, which `BULK_UPLOAD.COMPLETED` or `BULK_UPLOAD.FAILED`
    reports, unless there are 1,000 newer ones.
    """
    async with call.reading() as connection:
        job = await uploads.get(connection, platform_id=call.platform_id, upload_id=job_id)
    if job is None:
        raise not_found(Code.BULK_UPLOAD_JOB_NOT_FOUND, "upload")
    return resource_response(job)
