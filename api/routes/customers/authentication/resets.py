"""Resets of lost factors."""

from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http.errors import invalid_field, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import CREATED, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes.customers.authentication.access import person_of
from cardledger.api.routes.customers.authentication.refusals import refusal
from cardledger.ledger.customers.authentication import resets
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.ports import NotConnectedError
from cardledger.schema.wire.common import ScaResetId
from cardledger.schema.wire.customers.authentication import (
    Mobile,
    ScaQuery,
    ScaReset,
    ScaResetComplete,
    ScaResetCreate,
    ScaResetStarted,
)
from cardledger.schema.wire.errors import Code

_NO_CONTENT: Final = 204
_MAX_DIGITS: Final = 15  # Of E.164.

router = guarded_router("Strong Customer Authentication")


@router.post(
    "/sca/factors/reset",
    status_code=CREATED,
    response_model=ScaResetStarted,
    responses=error_responses(Code.USER_NOT_FOUND, Code.CONFLICT, Code.NOT_IMPLEMENTED),
)
@requires(Permission.MANAGE)
async def start_sca_reset(
    query: Annotated[ScaQuery, Query()], body: ScaResetCreate, call: PlatformCall
) -> Response:
    """Start the reset of a lost factor, `SMS_OTP` or `TOTP`; it can be completed for 24 hours.

    The customer proves with the identity verifier that it is alive; in the sandbox at once. Five
    resets in 24 hours, then 429 with `Retry-After`.
    """
    verifier = call.services.adapters.identity_verifier
    async with call.writing() as connection:
        person, _ = await person_of(connection, call, query.customer_id)
        if verifier is None:
            raise NotConnectedError("identity verifier")
        started = await resets.start(
            connection, person=person, factor=body.factor, verifier=verifier, at=call.now()
        )
        if isinstance(started, Refused):
            return refusal(started)
    return resource_response(started, CREATED)


@router.get(
    "/sca/factors/reset/{reset_id}",
    response_model=ScaReset,
    responses=error_responses(Code.USER_NOT_FOUND, Code.CONFLICT),
)
@requires(Permission.VIEW)
async def get_sca_reset(
    reset_id: ScaResetId, query: Annotated[ScaQuery, Query()], call: PlatformCall
) -> Response:
    """Return a reset; `enrollmentStatus` says whether the lost factor has been replaced."""
    async with call.reading() as connection:
        person, _ = await person_of(connection, call, query.customer_id, hold=False)
        found = await resets.get(connection, person=person, reset_id=reset_id, at=call.now())
    if found is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "reset")
    return resource_response(found)


@router.post(
    "/sca/factors/reset/{reset_id}/complete",
    status_code=_NO_CONTENT,
    responses=error_responses(Code.USER_NOT_FOUND, Code.CONFLICT),
)
@requires(Permission.MANAGE)
async def complete_sca_reset(
    reset_id: ScaResetId,
    query: Annotated[ScaQuery, Query()],
    body: ScaResetComplete,
    call: PlatformCall,
) -> Response:
    """Take the lost factor away, once the reset is `LIVENESS_PASSED`; the session ends.

    For `SMS_OTP` the phone in `mobile` becomes the customer's `phoneNumber`; verify it with
    `verify-phone`. An authenticator is enrolled anew.
    """
    phone_number = None if body.mobile is None else _phone_number(body.mobile)
    async with call.writing() as connection:
        person, _ = await person_of(connection, call, query.customer_id)
        completed = await resets.complete(
            connection,
            person=person,
            reset_id=reset_id,
            phone_number=phone_number,
            at=call.now(),
        )
        if isinstance(completed, Refused):
            return refusal(completed)
    if not completed:
        raise not_found(Code.REFERENCE_NOT_FOUND, "reset")
    return Response(status_code=_NO_CONTENT)


def _phone_number(mobile: Mobile) -> str:
    number = mobile.country_code + mobile.number
    if len(number) > 1 + _MAX_DIGITS:
        raise invalid_field("mobile.number", "must have 15 digits at most with the countryCode")
    return number
