"""Factors of strong customer authentication: list, enrol, confirm, delete."""

from typing import Annotated, Final

from fastapi import Query, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.errors import invalid_field, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext
from cardledger.api.http.responses import granting, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes.customers.authentication.access import person_of
from cardledger.api.routes.customers.authentication.refusals import refusal
from cardledger.ledger.customers.authentication import factors, passkeys, refusals, state, totp
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.customers.authentication.state import Person
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.common import LongName
from cardledger.schema.wire.customers.authentication import (
    PasskeyConfirmation,
    PasskeyEnrolment,
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

_ENROLMENT_ERRORS: Final = error_responses(
    Code.USER_NOT_FOUND, Code.PASSKEY_ALREADY_ENROLLED, Code.CONFLICT, Code.NOT_IMPLEMENTED
)


@router.get(
    "/sca/factors",
    response_model=ScaFactors,
    responses=error_responses(Code.USER_NOT_FOUND, Code.CONFLICT),
)
@requires(Permission.VIEW)
async def list_sca_factors(query: Annotated[ScaQuery, Query()], call: PlatformCall) -> Response:
    """List the factors that a customer can use.

    `SMS_OTP` follows from a verified phone number and `EMAIL_OTP` from a verified e-mail address;
    `TOTP` and `PASSKEY` are enrolled. All operations of this area are 409 `CONFLICT` for a customer
    whose `region` is not in the European Economic Area.
    """
    async with call.reading() as connection:
        person, _ = await person_of(connection, call, query.customer_id, hold=False)
        now = await state.read_state(connection, person)
        passkey = await passkeys.of(connection, person)
    found = [
        _passkey(passkey) if factor == "PASSKEY" and passkey else ScaFactor(factor=factor)
        for factor in factors.of(now)
    ]
    return resource_response(ScaFactors(factors=found))


@router.post(
    "/sca/factors",
    response_model=TotpEnrolment | PasskeyEnrolment,
    responses=_ENROLMENT_ERRORS,
)
@requires(Permission.MANAGE, secrets=("secret", "secretBase32Encoded", "totpUri"))
async def create_sca_factor(
    query: Annotated[ScaQuery, Query()], body: ScaFactorCreate, call: PlatformCall
) -> Response:
    """Begin to enrol a factor; for `TOTP` returns the secret of an authenticator, once.

    For `PASSKEY` returns the options to create one; without a relying party in the settings it is
    501. `POST /sca/factors/confirm` enrols the factor. A customer has one authenticator: another
    one is 409, until `POST /sca/factors/reset` has taken it away; and one passkey: another one is
    409 `PASSKEY_ALREADY_ENROLLED`, until it is deleted.
    """
    with granting():
        async with call.giving_access() as connection:
            person, _ = await person_of(connection, call, query.customer_id)
            platform = await platforms.get(connection, call.platform_id)
            if body.type == "PASSKEY":
                return await _begin_passkey(connection, call, person, platform.name)
            made = await totp.enrol(
                connection, person=person, issuer=platform.name, keys=call.keys, at=call.now()
            )
    if isinstance(made, Refused):
        return refusal(made)
    return resource_response(made)


async def _begin_passkey(
    connection: AsyncConnection, call: PlatformContext, person: Person, name: str
) -> Response:
    party = call.services.passkeys
    if party is None:
        return refusal(refusals.NO_PASSKEYS)
    begun = await passkeys.begin_enrolment(
        connection, person=person, name=name, party=party, at=call.now()
    )
    if isinstance(begun, Refused):
        return refusal(begun)
    return resource_response(
        PasskeyEnrolment(
            options=dict(begun.options),
            allowed_origins=list(party.origins),
            relying_party_id=party.id,
        )
    )


@router.post(
    "/sca/factors/confirm",
    response_model=TotpConfirmation | PasskeyConfirmation,
    responses=_ENROLMENT_ERRORS,
)
@requires(Permission.MANAGE, secrets=("recoveryCodes",))
async def confirm_sca_factor(
    query: Annotated[ScaQuery, Query()], body: ScaFactorConfirm, call: PlatformCall
) -> Response:
    """Enrol a factor by its first use; for `TOTP` returns ten recovery codes, once.

    A recovery code takes the place of a code of the authenticator in one login. The sandbox accepts
    the code 123456 beside the authenticator's own.
    """
    with granting():
        async with call.giving_access() as connection:
            person, sender = await person_of(connection, call, query.customer_id)
            if body.type == "PASSKEY":
                return await _enrol_passkey(connection, call, person, body)
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
    credential_id: LongName, query: Annotated[ScaQuery, Query()], call: PlatformCall
) -> Response:
    """Delete the passkey; an authenticator is taken away with `POST /sca/factors/reset`."""
    async with call.writing() as connection:
        person, _ = await person_of(connection, call, query.customer_id)
        existed = await passkeys.delete(
            connection, person=person, credential_id=credential_id, at=call.now()
        )
    if not existed:
        raise not_found(Code.REFERENCE_NOT_FOUND, "passkey")
    return Response(status_code=_NO_CONTENT)


async def _enrol_passkey(
    connection: AsyncConnection, call: PlatformContext, person: Person, body: ScaFactorConfirm
) -> Response:
    party = call.services.passkeys
    if party is None:
        return refusal(refusals.NO_PASSKEYS)
    if body.credential is None or body.origin is None:
        field = "credential" if body.credential is None else "origin"
        raise invalid_field(field, "is required")
    made = await passkeys.enrol(
        connection,
        person=person,
        origin=body.origin,
        credential=body.credential,
        party=party,
        at=call.now(),
    )
    if isinstance(made, Refused):
        return refusal(made)
    return resource_response(PasskeyConfirmation(factor=_passkey(made)))


def _passkey(passkey: passkeys.Passkey) -> ScaFactor:
    return ScaFactor(factor="PASSKEY", credential_id=passkeys.public_id(passkey.credential_id))
