"""Verifications of customers."""

from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import Listing, answer
from cardledger.ledger.customers import verifications
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.schema.wire.common import Page, VerificationId
from cardledger.schema.wire.customers.verifications import (
    VerificationCreate,
    VerificationResource,
    VerificationsQuery,
)
from cardledger.schema.wire.errors import Code

_TAG = "KYC/KYB Verifications"

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)


@writes.post(
    "/verifications",
    response_model=VerificationResource,
    responses=answers(Code.USER_NOT_FOUND, Code.NOT_IMPLEMENTED),
)
async def create_verification(body: VerificationCreate, call: PlatformCall) -> Response:
    """Have a customer verified; 400 when it is `APPROVED` or `REJECTED` already.

    In the sandbox, the end of a person's `fullName` decides: `002` rejected; what is missing has
    to be added first; then `003` poor document, `001` waits for a person, anything else approved.
    Of a business, the end of its `registrationNumber` does: `002` rejected; `001` and `003` the
    ordinary way (what is missing, then a person); anything else approved at once. Without a
    connected identity verifier it is 501.

    A verification that is not decided is taken up again when it is asked for once more.
    """
    try:
        async with call.writing() as connection:
            submitted = await verifications.submit(
                connection,
                platform_id=call.platform_id,
                customer_id=body.customer_id,
                verifier=call.services.adapters.identity_verifier,
                at=call.now(),
            )
    except verifications.AlreadyDecidedError as error:
        message = f"{error}; nothing about that is decided again"
        details = {"reason": "ALREADY_DECIDED", "status": error.status}
        raise ApiError(Code.INVALID_INPUT, message, details=details) from None
    if submitted is None:
        raise not_found(Code.USER_NOT_FOUND, "customer")
    return answer(submitted)


@reads.get("/verifications", response_model=Page[VerificationResource])
async def list_verifications(
    query: Annotated[VerificationsQuery, Query()], call: PlatformCall
) -> Response:
    """List verifications, newest first."""
    listing = Listing(call, "verifications", query)
    filters = verifications.VerificationFilters(
        customer_id=query.customer_id, status=query.verification_status
    )
    async with call.reading() as connection:
        page = await verifications.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=listing.wanted(newest_first=True),
        )
    return listing.answer(page)


@reads.get("/verifications/{verification_id}", response_model=VerificationResource)
async def get_verification(verification_id: VerificationId, call: PlatformCall) -> Response:
    """Return a verification."""
    async with call.reading() as connection:
        found = await verifications.get(
            connection, platform_id=call.platform_id, verification_id=verification_id
        )
    if found is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "verification")
    return answer(found)
