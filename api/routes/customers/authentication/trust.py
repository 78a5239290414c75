"""Trusted external accounts of customers who have to authenticate."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.errors import not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes.customers.authentication.access import person_of
from cardledger.api.routes.customers.authentication.refusals import error_of, refusal
from cardledger.ledger.customers.authentication import refusals, trust
from cardledger.ledger.customers.authentication.factors import Proof
from cardledger.ledger.customers.authentication.refusals import Refused
from cardledger.ledger.customers.authentication.state import Person
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.ports import CodeSender
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import ExternalAccountId
from cardledger.schema.wire.customers.authentication import ScaAnswer, Trust, TrustStarted
from cardledger.schema.wire.errors import Code

_PATH: Final = "/customers/external-accounts/{external_account_id}"

router = guarded_router("Strong Customer Authentication")

_START: Final[Mapping[str, Any]] = {
    "response_model": TrustStarted,
    "responses": error_responses(Code.USER_NOT_FOUND, Code.CONFLICT),
}
_CONFIRM: Final[Mapping[str, Any]] = {
    "response_model": Trust,
    "responses": error_responses(
        Code.USER_NOT_FOUND, Code.CONFLICT, Code.ACCOUNT_LOCKED, Code.NOT_IMPLEMENTED
    ),
}


@router.post(_PATH + "/trust", **_START)
@requires(Permission.MANAGE)
async def trust_external_account(
    external_account_id: ExternalAccountId, call: PlatformCall
) -> Response:
    """Begin the challenge with which a customer trusts one of its external accounts.

    A code is sent to its phone; with a passkey, `scaChallenge.passkeyAssertionOptions` is another
    way to answer.

    Payments of the customer to a trusted account need no challenge. `scaChallenge` is absent when
    the account is trusted already. 409 for an account whose customer does not have to authenticate,
    and for one of the platform.
    """
    return await _start(call, external_account_id, trusted=True)


@router.post(_PATH + "/untrust", **_START)
@requires(Permission.MANAGE)
async def untrust_external_account(
    external_account_id: ExternalAccountId, call: PlatformCall
) -> Response:
    """Send a code to the customer, with which it ends the trust in an external account."""
    return await _start(call, external_account_id, trusted=False)


@router.post(_PATH + "/trust/confirm", **_CONFIRM)
@requires(Permission.MANAGE)
async def confirm_external_account_trust(
    external_account_id: ExternalAccountId, body: ScaAnswer, call: PlatformCall
) -> Response:
    """Trust the external account with the code; without `challengeId`, with that of the last one.

    The fifth wrong code in a row locks the customer for 30 minutes, 423 `ACCOUNT_LOCKED`.
    """
    return await _confirm(call, external_account_id, body, trusted=True)


@router.post(_PATH + "/untrust/confirm", **_CONFIRM)
@requires(Permission.MANAGE)
async def confirm_external_account_untrust(
    external_account_id: ExternalAccountId, body: ScaAnswer, call: PlatformCall
) -> Response:
    """End the trust in the external account with the code."""
    return await _confirm(call, external_account_id, body, trusted=False)


async def _start(call: PlatformContext, account_id: Id, *, trusted: bool) -> Response:
    async with call.writing() as connection:
        person, sender = await _owner(connection, call, account_id)
        started = await trust.start(
            connection,
            person=person,
            account_id=account_id,
            trusted=trusted,
            keys=call.keys,
            sender=sender,
            party=call.services.passkeys,
            at=call.now(),
        )
        if isinstance(started, Refused):
            return refusal(started)
    return resource_response(TrustStarted(sca_challenge=started))


async def _confirm(
    call: PlatformContext, account_id: Id, body: ScaAnswer, *, trusted: bool
) -> Response:
    async with call.writing() as connection:
        person, _ = await _owner(connection, call, account_id)
        refused = await trust.confirm(
            connection,
            person=person,
            account_id=account_id,
            trusted=trusted,
            proof=Proof(
                challenge_id=body.challenge_id,
                code=body.code,
                assertion=body.passkey_assertion,
                origin=body.origin,
            ),
            keys=call.keys,
            party=call.services.passkeys,
            at=call.now(),
        )
        if refused is not None:
            return refusal(refused)
    return resource_response(Trust(trusted=trusted))


async def _owner(
    connection: AsyncConnection, call: PlatformContext, account_id: Id
) -> tuple[Person, CodeSender]:
    owner = await trust.owner_of(connection, platform_id=call.platform_id, account_id=account_id)
    if owner is False:
        raise not_found(Code.REFERENCE_NOT_FOUND, "external account")
    if owner is None or owner is True:
        raise error_of(refusals.NOT_REQUIRED)
    return await person_of(connection, call, owner)
