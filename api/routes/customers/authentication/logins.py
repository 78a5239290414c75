"""Logins by strong customer authentication, and what the platform reports of its own."""

from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http.errors import invalid_field
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes.customers.authentication.access import person_of
from cardledger.api.routes.customers.authentication.refusals import error_of, refusal
from cardledger.ledger.customers.authentication import refusals, sessions
from cardledger.ledger.customers.authentication.factors import Proof
from cardledger.ledger.customers.authentication.passkeys import Ceremony
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.customers.authentication import (
    ScaEvent,
    ScaLock,
    ScaLogin,
    ScaLoginComplete,
    ScaLoginStart,
    ScaLoginStarted,
    ScaQuery,
)
from cardledger.schema.wire.errors import Code

router = guarded_router("Strong Customer Authentication")

_LOCKING: Final = error_responses(Code.USER_NOT_FOUND, Code.CONFLICT, Code.ACCOUNT_LOCKED)


@router.post(
    "/sca/login/start",
    response_model=ScaLoginStarted,
    responses=error_responses(Code.USER_NOT_FOUND, Code.CONFLICT, Code.NOT_IMPLEMENTED),
)
@requires(Permission.MANAGE)
async def start_sca_login(
    query: Annotated[ScaQuery, Query()], body: ScaLoginStart, call: PlatformCall
) -> Response:
    """Start a login; `SMS_OTP` and `EMAIL_OTP` send a code, which works for five minutes.

    `TOTP` has no challenge: complete the login with the authenticator's code. A customer gets 30
    codes an hour, then 429. 409 for a factor that the customer does not have. `PASSKEY` returns the
    options to use the passkey; without a relying party in the settings it is 501.
    """
    async with call.writing() as connection:
        person, sender = await person_of(connection, call, query.customer_id)
        started = await sessions.start(
            connection,
            person=person,
            factor=body.factor,
            keys=call.keys,
            sender=sender,
            party=call.services.passkeys,
            at=call.now(),
        )
        if isinstance(started, Refused):
            return refusal(started)
    return resource_response(
        ScaLoginStarted(
            factor=body.factor,
            challenge_id=None if started is None else started.id,
            expires_at=None if started is None else started.expires_at,
            options=dict(started.options) if isinstance(started, Ceremony) else None,
            allowed_origins=_origins(call) if isinstance(started, Ceremony) else None,
        )
    )


@router.post(
    "/sca/login/complete",
    response_model=ScaLogin,
    responses=error_responses(
        Code.USER_NOT_FOUND, Code.CONFLICT, Code.ACCOUNT_LOCKED, Code.NOT_IMPLEMENTED
    ),
)
@requires(Permission.MANAGE)
async def complete_sca_login(
    query: Annotated[ScaQuery, Query()], body: ScaLoginComplete, call: PlatformCall
) -> Response:
    """Complete a login with the code; the session lasts 180 days.

    A wrong code is 400 with `details.attemptsLeft`; the fifth in a row locks the customer for 30
    minutes, 423 `ACCOUNT_LOCKED`. `endUserIpAddress` is logged.
    """
    async with call.writing() as connection:
        person, sender = await person_of(connection, call, query.customer_id)
        if body.factor == "PASSKEY" and call.services.passkeys is None:
            raise error_of(refusals.NO_PASSKEYS)
        _check_proof(body)
        completed = await sessions.complete(
            connection,
            person=person,
            answer=sessions.Answer(
                factor=body.factor,
                proof=Proof(
                    challenge_id=body.challenge_id,
                    code=body.code,
                    assertion=body.passkey_assertion if body.factor == "PASSKEY" else None,
                    origin=body.origin,
                ),
                ip_address=body.end_user_ip_address,
            ),
            keys=call.keys,
            sender=sender,
            party=call.services.passkeys,
            at=call.now(),
        )
        if isinstance(completed, Refused):
            return refusal(completed)
    return resource_response(ScaLogin(status="SUCCESS", session_expires_at=completed))


@router.post("/sca/record-event", response_model=ScaLock, responses=_LOCKING)
@requires(Permission.MANAGE)
async def record_sca_event(
    query: Annotated[ScaQuery, Query()], body: ScaEvent, call: PlatformCall
) -> Response:
    """Record what happened in the platform's own login.

    `FAILED_LOGIN_ATTEMPT` counts as a wrong code does: the fifth locks the customer.
    `RESET_PASSWORD_COMPLETED` ends the session and the count. 423 while the customer is locked.
    """
    async with call.writing() as connection:
        person, _ = await person_of(connection, call, query.customer_id)
        recorded = await sessions.record(
            connection, person=person, event_type=body.event_type, at=call.now()
        )
        if isinstance(recorded, Refused):
            return refusal(recorded)
    return resource_response(recorded)


def _origins(call: PlatformContext) -> list[str]:
    party = call.services.passkeys
    return [] if party is None else list(party.origins)


def _check_proof(body: ScaLoginComplete) -> None:
    if body.factor == "PASSKEY":
        if body.passkey_assertion is None or body.origin is None:
            field = "passkeyAssertion" if body.passkey_assertion is None else "origin"
            raise invalid_field(field, "is required for PASSKEY")
    elif body.code is None:
        raise invalid_field("code", f"is required for {body.factor}")
