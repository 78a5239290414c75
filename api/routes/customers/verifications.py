"""Verifications of customers."""

from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.customers import verifications
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.common import Page, VerificationId
from cardledger.schema.wire.customers.verifications import (
    VerificationCreate,
    VerificationResource,
    VerificationsQuery,
)
from cardledger.schema.wire.errors import Code

_TAG = "KYC/KYB Verifications"

router = guarded_router(_TAG)


@router.post(
    "/verifications",
    response_model=VerificationResource,
    responses=error_responses(Code.USER_NOT_FOUND, Code.NOT_IMPLEMENTED),
)
@requires(Permission.MANAGE)
async def create_verification(body: VerificationCreate, call: PlatformCall) -> Response:
    """Start or resume the verification of a customer; 400 when it is `APPROVED` or `REJECTED`.

    In the sandbox the last three characters of an individual's `fullName` decide: `002` rejected;
    missing information and an identity document are required first; then `003` poor document, `001`
    manual review, anything else approved. For a business those of `registrationNumber` decide:
    `002` rejected; `001` and `003` the regular process (missing information and documents, then
    manual review); anything else approved. Documents of a verification that is not to be corrected
    are submitted: they cannot be changed any more.
    Without a connected identity verifier it is 501.
    """
    try:
        async with call.writing() as connection:
            submitted = await verifications.submit(
                connection,
                platform_id=call.platform_id,
                customer_id=body.customer_id,
                verifier=call.services.adapters.identity_verifier,
                keys=call.keys,
                at=call.now(),
            )
    except verifications.AlreadyDecidedError as error:
        message = f"{error}; a decided verification cannot be repeated"
        details = {"reason": "ALREADY_DECIDED", "status": error.status}
        raise ApiError(Code.INVALID_INPUT, message, details=details) from None
    if submitted is None:
        raise not_found(Code.USER_NOT_FOUND, "customer")
    return resource_response(submitted)


@router.get("/verifications", response_model=Page[VerificationResource])
@requires(Permission.VIEW)
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
    return await listing.response_in_turns(page, call.services.loop_turns)


@router.get("/verifications/{verification_id}", response_model=VerificationResource)
@requires(Permission.VIEW)
async def get_verification(verification_id: VerificationId, call: PlatformCall) -> Response:
    """Return a verification."""
    async with call.reading() as connection:
        verification = await verifications.get(
            connection, platform_id=call.platform_id, verification_id=verification_id
        )
    if verification is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "verification")
    return resource_response(verification)
