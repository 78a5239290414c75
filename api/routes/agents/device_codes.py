"""Redeeming a device code: the one route without credentials, because the code is the proof."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http import routing
from cardledger.api.http.authentication import FAILURES
from cardledger.api.http.errors import ApiError
from cardledger.api.http.rate_limits import address_of, stranger
from cardledger.api.http.request_context import CodeCall, services_of
from cardledger.api.http.responses import answer
from cardledger.api.routes.agents.management import no_code
from cardledger.ledger.agents import device_codes
from cardledger.ledger.agents.device_codes import DeviceCode
from cardledger.schema.wire.agents.agents import AgentConnection
from cardledger.schema.wire.errors import Code


async def _admit(request: Request) -> CodeCall:
    services = services_of(request)
    code = request.path_params["code"]
    with services.limits.guessing(FAILURES, stranger(address_of(request), "device code")):
        async with services.reader.connect() as connection:
            found = await device_codes.find(connection, code=code, keys=services.keys)
            if found is None:
                raise no_code()
            now = services.clock()
            if found.expires_at <= now:
                # Here, so that an old code is not even answered again: codes get about.
                await _check(connection, found, now)
    return CodeCall(services=services, found=found)


async def _check(connection: AsyncConnection, found: DeviceCode, at: datetime) -> None:
    try:
        await device_codes.check(connection, found, at)
    except device_codes.CodeRefusedError as error:
        raise _spent(error) from None


async def _call(request: Request) -> CodeCall:
    call: CodeCall = request.state.call
    return call


router = APIRouter(route_class=routing.guarded_by(_admit, None), tags=["Agent Management"])


@router.post("/agents/device-codes/{code}/redeem", response_model=AgentConnection)
async def redeem_agent_device_code(
    code: str,  # noqa: ARG001 - looked up before
    call: Annotated[CodeCall, Depends(_call)],
) -> Response:
    """Become the agent that a code is for: `accessToken` is in this answer and in no other.

    Without credentials and without a body. A code works once, within fifteen minutes; who comes
    again with the same `Idempotency-Key` within that time is answered again.
    """
    try:
        async with call.writing() as connection:
            connected = await device_codes.redeem(
                connection, call.found, keys=call.keys, at=call.now()
            )
    except device_codes.CodeRefusedError as error:
        raise _spent(error) from None
    if connected is None:
        raise no_code()
    response = answer(connected)
    response.headers["Cache-Control"] = "no-store"
    return response


def _spent(error: device_codes.CodeRefusedError) -> ApiError:
    return ApiError(Code.INVALID_INPUT, str(error), details={"reason": error.reason.value})
