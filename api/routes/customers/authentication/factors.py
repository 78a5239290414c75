"""Factors of strong customer authentication: list, enrol, confirm, delete."""

from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http.errors import invalid_field, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes.customers.authentication.access import person_of
from cardledger.api.routes.customers.authentication.refusals import error_of, refusal
from cardledger.ledger.customers.authentication import factors, refusals, state, totp
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.common import Name
from cardledger.schema.wire.customers.authentication import (
    ScaFactor,
    ScaFactorConfirm,
    ScaFactorCreate,
    ScaFactors,
    ScaQuery,
    TotpConfirmation,
    TotpEnrolment,
)
from cardledger.schema.wire.errors import Code

_NO_CONTENT: Final = 204

router = guarded_router("Strong Customer Authentication")


@router.get(
    "/sca/factors",
    response_model=ScaFactors,
    responses=error_responses(Code.USER_NOT_FOUND, Code.CONFLICT),
)
@requires(Permission.VIEW)
async def list_sca_factors(query: Annotated[ScaQuery, Query()], call: PlatformCall) -> Response:
    """List the factors that a customer can use.

    `SMS_OTP` follows from a verified phone number and `EMAIL_OTP` from a verified e-mail address;
    `TOTP` is enrolled. All operations of this area are 409 `CONFLICT` for a customer whose `region`
    is not in the European Economic Area.
    """
    async with call.reading() as connection:
        person, _ = await person_of(connection, call, query.customer_id, hold=False)
        now = await state.read_state(connection, person)
    found = [ScaFactor(factor=factor) for factor in factors.of(now)]
    return resource_response(ScaFactors(factors=found))


@router.post(
    "/sca/factors",
    response_model=TotpEnrolment,
    responses=error_responses(Code.USER_NOT_FOUND, Code.CONFLICT, Code.NOT_IMPLEMENTED),
)
@requires(Permission.MANAGE, secrets=("secret", "secretBase32Encoded", "totpUri"))
async def create_sca_factor(
    query: Annotated[ScaQuery, Query()], body: ScaFactorCreate, call: PlatformCall
) -> Response:
    """Begin to enrol a factor; for `TOTP` returns the secret of an authenticator, once.

    `POST /sca/factors/confirm` enrols it. A customer has one authenticator: another one is 409,
    until `POST /sca/factors/reset` has taken it away. `PASSKEY` is 501 `NOT_IMPLEMENTED`.
    """
    async with call.writing() as connection:
        person, _ = await person_of(connection, call, query.customer_id)
        if body.type == "PASSKEY":
            raise error_of(refusals.NO_PASSKEYS)
        platform = await platforms.get(connection, call.platform_id)
        made = await totp.enrol(
            connection, person=person, issuer=platform.name, keys=call.keys, at=call.now()
        )
    if isinstance(made, Refused):
        return refusal(made)
    return resource_response(made)


@router.post(
    "/sca/factors/confirm",
    response_model=TotpConfirmation,
    responses=error_responses(Code.USER_NOT_FOUND, Code.CONFLICT, Code.NOT_IMPLEMENTED),
)
@requires(Permission.MANAGE, secrets=("recoveryCodes",))
async def confirm_sca_factor(
    query: Annotated[ScaQuery, Query()], body: ScaFactorConfirm, call: PlatformCall
) -> Response:
    """Enrol a factor by the first code; for `TOTP` returns ten recovery codes, once.

    A recovery code takes the place of a code of the authenticator in one login. The sandbox accepts
    the code 123456 beside the authenticator's own.
    """
    async with call.writing() as connection:
        person, sender = await person_of(connection, call, query.customer_id)
        if body.type == "PASSKEY":
            raise error_of(refusals.NO_PASSKEYS)
        if body.secret is None or body.code is None:
            raise invalid_field("secret" if body.secret is None else "code", "is required")
        confirmed = await totp.confirm(
            connection,
            person=person,
            secret=body.secret,
            code=body.code,
            keys=call.keys,
            sender=sender,
            at=call.now(),
        )
    if isinstance(confirmed, Refused):
        return refusal(confirmed)
    return resource_response(TotpConfirmation(recovery_codes=confirmed))


@router.delete(
    "/sca/factors/{credential_id}",
    status_code=_NO_CONTENT,
    responses=error_responses(Code.USER_NOT_FOUND, Code.CONFLICT),
)
@requires(Permission.MANAGE)
async def delete_sca_factor(
    credential_id: Name, query: Annotated[ScaQuery, Query()], call: PlatformCall
) -> Response:
    """Delete a passkey. No passkey can be enrolled yet, so every id is 404.

    An authenticator is taken away with `POST /sca/factors/reset`.
    """
    del credential_id
    async with call.reading() as connection:
        await person_of(connection, call, query.customer_id, hold=False)
    raise not_found(Code.REFERENCE_NOT_FOUND, "passkey")
