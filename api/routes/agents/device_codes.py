"""Redemption of device codes: without credentials, because the code is the credential."""

from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request, Response

from cardledger.api.http.errors import ApiError
from cardledger.api.http.in_flight import HEADER
from cardledger.api.http.operations import Access, declare
from cardledger.api.http.rate_limits import address_of
from cardledger.api.http.request_context import DeviceCodeContext, services_of
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import guarded_router
from cardledger.api.routes.agents.management import no_code
from cardledger.ledger.agents import device_codes
from cardledger.schema.wire.agents.agents import AgentConnection
from cardledger.schema.wire.errors import Code


async def _admit(request: Request) -> DeviceCodeContext:
    services = services_of(request)
    address = address_of(request)
    sent = request.path_params["code"]
    code = device_codes.presented(services.keys, sent)
    async with services.authenticator.looking_up(
        address, _credential(code.digest), code.digest
    ) as connection:
        device_code = await device_codes.find(connection, sent, services.keys)
    if device_code is None:
        await services.authenticator.count_failure(address, credential=None)
        raise no_code()
    call = DeviceCodeContext(services=services, device_code=device_code)
    try:
        device_codes.check(device_code, call.now())
    except device_codes.CodeRefusedError as error:
        if not _may_be_repeated(request, device_code, call.now()):
            refusal = await _spent_error(call, error)  # Counted, whatever the response says.
            raise no_code() if device_code.is_agent_deleted else refusal from None
    return call


def _may_be_repeated(request: Request, device_code: device_codes.DeviceCode, at: datetime) -> bool:
    """Return whether the request may be a repetition of the one that redeemed the code.

    Not of an expired code: codes leak.
    """
    is_redeemed = device_code.redeemed_at is not None and device_code.expires_at > at
    return is_redeemed and HEADER in request.headers


async def _context(request: Request) -> DeviceCodeContext:
    call: DeviceCodeContext = request.state.call
    return call


router = guarded_router("Agent Management")


@router.post("/agents/device-codes/{code}/redeem", response_model=AgentConnection)
@declare(Access(admit=_admit, secrets=("accessToken",)))
async def redeem_agent_device_code(
    code: str,
    call: Annotated[DeviceCodeContext, Depends(_context)],
) -> Response:
    """Redeem a device code for the agent's `accessToken`, which only this response contains.

    Without credentials and without a body. A code works once, within fifteen minutes; within that
    time a request with the same `Idempotency-Key` gets the same response without the token. A
    token whose response was lost is replaced by deleting the agent and creating another.
    """
    try:
        async with call.writing() as connection:
            connected = await device_codes.redeem(
                connection, code, call.device_code, keys=call.keys, at=call.now()
            )
    except device_codes.CodeRefusedError as error:
        raise await _spent_error(call, error) from None
    if connected is None:
        raise no_code()
    response = resource_response(connected)
    response.headers["Cache-Control"] = "no-store"
    return response


def _credential(code_hash: bytes) -> str:
    return f"code:{code_hash.hex()}"


async def _spent_error(call: DeviceCodeContext, error: device_codes.CodeRefusedError) -> ApiError:
    """Return the error of a code that cannot be redeemed any more, counted by the code."""
    credential = _credential(call.device_code.code_hash)
    await call.services.authenticator.count_failure("", credential=credential)
    return ApiError(Code.INVALID_INPUT, str(error), details={"reason": error.reason.value})
