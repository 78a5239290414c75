"""Documents: evidence for verifications. They are uploaded, and no operation returns a file."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final

import structlog
from fastapi import Query, Request, Response
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.errors import ApiError, not_found, too_many_waiting, unavailable
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, RequestContext
from cardledger.api.http.responses import CREATED, Listing, capped, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.uploads.forms import Room, form_with_file, prepared
from cardledger.api.uploads.limits import DOCUMENT_FILE
from cardledger.api.uploads.multipart import ReceivedFile
from cardledger.ledger.customers.documents import registry as documents
from cardledger.ledger.customers.documents import room, uploaded
from cardledger.ledger.customers.documents.directory import DirectoryError, StagedFile, StoredFile
from cardledger.ledger.customers.documents.formats import DocumentRefusedError
from cardledger.ledger.customers.documents.store import PlatformBusyError
from cardledger.ledger.customers.documents.uploaded import CheckedFile
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import DocumentId, Page, TypedId
from cardledger.schema.wire.customers.documents import (
    DocumentCreate,
    DocumentReplace,
    DocumentResource,
    DocumentsQuery,
    Fault,
)
from cardledger.schema.wire.errors import Code

_TAG: Final = "Documents"
_NO_CONTENT: Final = 204
_ID: Final[TypeAdapter[Id]] = TypeAdapter(DocumentId)

_log = structlog.get_logger()

router = guarded_router(_TAG)

_CODES: Final[Mapping[Fault, Code]] = {
    Fault.LOW_QUALITY: Code.LOW_QUALITY,
    Fault.DATA_MISMATCH: Code.DATA_MISMATCH,
    Fault.EXPIRED: Code.EXPIRED,
    Fault.SUSPECTED_FRAUD: Code.SUSPECTED_FRAUD,
    Fault.UNSUITABLE_DOCUMENT: Code.UNSUITABLE_DOCUMENT,
    Fault.INCOMPLETE: Code.INCOMPLETE,
}
_FAULTS: Final = error_responses(*_CODES.values())


@contextmanager
def _accepting() -> Iterator[None]:
    """Answer 400 for a document that is refused, with the code of what is wrong with it."""
    try:
        yield
    except DocumentRefusedError as error:
        details = {"field": "file"}
        raise ApiError(_CODES[error.fault], str(error), details=details) from None


async def _checked(_: Request, file: ReceivedFile) -> CheckedFile:
    with _accepting():
        return await asyncio.to_thread(uploaded.checked, file.name, file.content)


@contextmanager
def _api_errors() -> Iterator[None]:
    try:
        with capped(), _accepting():
            yield
    except room.UnknownDocumentError:
        raise _no_document() from None
    except room.SubmittedError:
        message = (
            "The document was submitted for a verification, which relies on it; upload another"
            " document instead."
        )
        details = {"reason": "DOCUMENT_SUBMITTED"}
        raise ApiError(Code.CONFLICT, message, details=details) from None


async def _check_room(request: Request, connection: AsyncConnection, size: int) -> Room | None:
    call: RequestContext = request.state.call
    replaced = request.path_params.get("document_id")
    try:
        document_id = None if replaced is None else _ID.validate_python(replaced)
    except ValidationError:
        return None  # The route says what is wrong.
    with _api_errors():
        found = await room.check(
            connection,
            platform_id=call.platform_id,
            replaced=document_id,
            size=size,
            limits=call.services.document_limits,
        )
    return Room(found.size, _refusal(found.refusal))


def _refusal(error: room.RoomError) -> ApiError:
    """Return the error of a document that is refused because of `error`."""
    try:
        with _api_errors():
            raise error
    except ApiError as refusal:
        return refusal


_FORM: Final = form_with_file(max_file=DOCUMENT_FILE, prepare=_checked, check_room=_check_room)


async def _store_new(call: RequestContext, body: object, _: Mapping[str, Any]) -> None:
    """Store the file of a new document in the directory, if files are there."""
    try:
        DocumentCreate.model_validate(body)
    except ValidationError:
        return  # The route says what is wrong.
    await _store(call, new_id())


async def _store(call: RequestContext, document_id: Id) -> None:
    """Store the file of `call` in the directory, if files are there: no transaction is open.

    Raises: ApiError RATE_LIMITED, SERVICE_UNAVAILABLE, and nothing is changed.
    """
    store = call.services.document_files
    if store is None:
        return
    file: CheckedFile = call.prepared[0]
    try:
        stored = await store.write(call.platform_id, document_id, file.sealed)
    except PlatformBusyError as error:
        _log.info("document not stored", reason=str(error))
        message = "Other files of the platform are being stored, and nothing was changed."
        raise too_many_waiting(message) from None
    except DirectoryError as error:
        _log.error("document not stored", error=str(error))
        message = "The file cannot be stored now, and nothing was changed. Retry later."
        raise unavailable(message) from None
    call.staged.append(StagedFile(stored))


def _stored(call: RequestContext) -> StoredFile | None:
    return call.staged[0].file if call.staged else None


def _keep(call: RequestContext) -> None:
    """Keep the file of `call`: a row that may be committed names it."""
    for staged in call.staged:
        staged.is_named = True


@router.post(
    "/documents",
    status_code=CREATED,
    response_model=DocumentResource,
    responses={**error_responses(Code.USER_NOT_FOUND, Code.REFERENCE_NOT_FOUND), **_FAULTS},
)
@requires(Permission.MANAGE, form=_FORM, prepare=_store_new)
async def create_document(body: DocumentCreate, request: Request, call: PlatformCall) -> Response:
    """Upload a document of a customer, or of a beneficial owner of a business.

    The file is a PDF, a JPEG or a PNG of at most 10 MiB; its content decides, not its name. An
    image has 200 pixels or more on its shorter side. No operation returns the file. A customer has
    100 documents at most, with those of its owners: one more is 409 `CONFLICT`.

    In the sandbox the last three characters of `documentNumber` decide: `201` `LOW_QUALITY`, `202`
    `DATA_MISMATCH`, `203` `EXPIRED`, `204` `SUSPECTED_FRAUD`, `205` `UNSUITABLE_DOCUMENT`, `206`
    `INCOMPLETE`; `301` to `306` are the same when the holder is verified.
    """
    try:
        with _api_errors():
            uploaded.check_number(body.document_number, call.services.adapters.identity_verifier)
            async with call.writing() as connection:
                created = await documents.create(
                    connection,
                    platform_id=call.platform_id,
                    holder=body.document_holder,
                    stated=body,
                    file=prepared(request),
                    stored=_stored(call),
                    limits=call.services.document_limits,
                    keys=call.keys,
                    at=call.now(),
                )
                _keep(call)
    except documents.UnknownHolderError:
        raise _no_holder(body.document_holder) from None
    return resource_response(created, CREATED)


@router.get("/documents", response_model=Page[DocumentResource])
@requires(Permission.VIEW)
async def list_documents(query: Annotated[DocumentsQuery, Query()], call: PlatformCall) -> Response:
    """List documents, newest first.

    `documentHolder` lists those of a customer, without those of its owners, or of an owner.
    """
    listing = Listing(call, "documents", query)
    async with call.reading() as connection:
        page = await documents.page(
            connection,
            platform_id=call.platform_id,
            holder=query.document_holder,
            wanted=listing.wanted(newest_first=True),
            keys=call.keys,
        )
    return listing.response(page)


@router.get("/documents/{document_id}", response_model=DocumentResource)
@requires(Permission.VIEW)
async def get_document(document_id: DocumentId, call: PlatformCall) -> Response:
    """Return what is known of a document; the file is not returned."""
    async with call.reading() as connection:
        document = await documents.get(
            connection, platform_id=call.platform_id, document_id=document_id, keys=call.keys
        )
    if document is None:
        raise _no_document()
    return resource_response(document)


@router.put(
    "/documents/{document_id}",
    response_model=DocumentResource,
    responses={**error_responses(Code.CONFLICT), **_FAULTS},
)
@requires(Permission.MANAGE, form=_FORM)
async def replace_document(
    document_id: DocumentId, body: DocumentReplace, request: Request, call: PlatformCall
) -> Response:
    """Replace a document: its file and everything that is stated of it, but not its holder.

    409 once it was submitted for a verification.
    """
    with _api_errors():
        uploaded.check_number(body.document_number, call.services.adapters.identity_verifier)
        await _store(call, document_id)
        async with call.writing() as connection:
            replaced, before = await documents.replace(
                connection,
                platform_id=call.platform_id,
                document_id=document_id,
                stated=body,
                file=prepared(request),
                stored=_stored(call),
                limits=call.services.document_limits,
                keys=call.keys,
                at=call.now(),
            )
            if replaced is not None:
                _keep(call)
            call.remove_after_commit(before.files)
    if replaced is None:
        raise _no_document()
    return resource_response(replaced)


@router.delete(
    "/documents/{document_id}",
    status_code=_NO_CONTENT,
    responses=error_responses(Code.CONFLICT),
)
@requires(Permission.MANAGE)
async def delete_document(document_id: DocumentId, call: PlatformCall) -> Response:
    """Delete a document with its file; 409 once it was submitted for a verification."""
    with _api_errors():
        async with call.writing() as connection:
            erased = await documents.remove(
                connection, platform_id=call.platform_id, document_id=document_id
            )
            call.remove_after_commit(erased.files)
    if not erased.count:
        raise _no_document()
    return Response(status_code=_NO_CONTENT)


def _no_holder(holder: TypedId) -> ApiError:
    if holder.resource == "Customer":
        return not_found(Code.USER_NOT_FOUND, "customer")
    return not_found(Code.REFERENCE_NOT_FOUND, "beneficial owner")


def _no_document() -> ApiError:
    return not_found(Code.REFERENCE_NOT_FOUND, "document")
