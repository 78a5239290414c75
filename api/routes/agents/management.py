"""Agents as their platform sees them: making, changing and connecting them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, invalid, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import CREATED, Listing, answer
from cardledger.ledger.agents import device_codes
from cardledger.ledger.agents import registry as agents
from cardledger.ledger.agents.refusals import AgentRefusal, AgentRefusedError
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.schema.wire.agents.agents import (
    AgentCreate,
    AgentCreated,
    AgentDeviceCode,
    AgentPolicyUpdate,
    AgentResource,
    AgentsQuery,
    AgentUpdate,
    DeviceCodeStatus,
)
from cardledger.schema.wire.common import AgentId, Page
from cardledger.schema.wire.errors import Code

_TAG = "Agent Management"
_NO_CONTENT = 204

reads = routing.routes(Permission.VIEW, tag=_TAG)
writes = routing.routes(Permission.MANAGE, tag=_TAG)

_INVALID: Final[Mapping[AgentRefusal, Code]] = {
    AgentRefusal.CUSTOMER: Code.INVALID_INPUT,
    AgentRefusal.POLICY: Code.INVALID_INPUT,
    AgentRefusal.CURRENCY: Code.INVALID_CURRENCY,
}


@writes.post(
    "/agents",
    status_code=CREATED,
    response_model=AgentCreated,
    responses=answers(Code.INVALID_CURRENCY),
)
async def create_agent(body: AgentCreate, call: PlatformCall) -> Response:
    """Make an agent that acts for a customer, and the code with which a program becomes it.

    The code is in this answer and in no other; it can be redeemed once, within fifteen minutes.
    """
    with _refusals("policy."):
        async with call.writing() as connection:
            created = await agents.create(
                connection,
                platform_id=call.platform_id,
                customer_id=body.customer_id,
                name=body.name,
                policy=body.policy,
                at=call.now(),
            )
            code = await device_codes.create(
                connection,
                platform_id=call.platform_id,
                agent_id=created.id,
                keys=call.keys,
                at=call.now(),
            )
    assert code is not None
    return _secret(answer(AgentCreated(agent=created, device_code=code), CREATED))


@reads.get("/agents", response_model=Page[AgentResource])
async def list_agents(query: Annotated[AgentsQuery, Query()], call: PlatformCall) -> Response:
    """List the platform's agents, newest first."""
    listing = Listing(call, "agents", query)
    filters = agents.AgentFilters(
        customer_id=query.customer_id,
        is_paused=_truth(query.is_paused),
        is_connected=_truth(query.is_connected),
        created_from=query.created_after,
        created_to=query.created_before,
        updated_from=query.updated_after,
        updated_to=query.updated_before,
    )
    async with call.reading() as connection:
        page = await agents.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=listing.wanted(newest_first=True),
            at=call.now(),
        )
    return listing.answer(page)


@reads.get("/agents/{agent_id}", response_model=AgentResource)
async def get_agent(agent_id: AgentId, call: PlatformCall) -> Response:
    """Return an agent."""
    async with call.reading() as connection:
        found = await agents.get(
            connection, platform_id=call.platform_id, agent_id=agent_id, at=call.now()
        )
    return _agent(found)


@writes.patch("/agents/{agent_id}", response_model=AgentResource)
async def update_agent(agent_id: AgentId, body: AgentUpdate, call: PlatformCall) -> Response:
    """Name an agent anew, pause it or let it go on; from its next request on.

    A paused agent may still read.
    """
    if not body.model_fields_set:
        raise ApiError(Code.INVALID_INPUT, "nothing to change; send name or isPaused")
    async with call.writing() as connection:
        changed = await agents.change(
            connection,
            platform_id=call.platform_id,
            agent_id=agent_id,
            changes=body.model_dump(exclude_unset=True),
            at=call.now(),
        )
    return _agent(changed)


@writes.delete("/agents/{agent_id}", status_code=_NO_CONTENT)
async def delete_agent(agent_id: AgentId, call: PlatformCall) -> Response:
    """Delete an agent; its access token lets nobody in any more from now on."""
    async with call.writing() as connection:
        existed = await agents.delete(
            connection, platform_id=call.platform_id, agent_id=agent_id, at=call.now()
        )
    if not existed:
        raise no_agent()
    return Response(status_code=_NO_CONTENT)


@writes.patch(
    "/agents/{agent_id}/policy",
    response_model=AgentResource,
    responses=answers(Code.INVALID_CURRENCY),
)
async def update_agent_policy(
    agent_id: AgentId, body: AgentPolicyUpdate, call: PlatformCall
) -> Response:
    """Change parts of an agent's policy; it holds from the agent's next request on.

    What is not there stays, in `spendingLimits`, `accountRestrictions` and `approvalThresholds` as
    well. A list replaces the whole list. Null takes away what is optional.
    """
    if not body.model_fields_set:
        raise ApiError(Code.INVALID_INPUT, "nothing to change; send a part of the policy")
    with _refusals(""):
        async with call.writing() as connection:
            changed = await agents.change_policy(
                connection,
                platform_id=call.platform_id,
                agent_id=agent_id,
                changes=body.model_dump(mode="json", by_alias=True, exclude_unset=True),
                at=call.now(),
            )
    return _agent(changed)


@writes.post("/agents/{agent_id}/device-codes", status_code=CREATED, response_model=AgentDeviceCode)
async def create_agent_device_code(agent_id: AgentId, call: PlatformCall) -> Response:
    """Make another code for an agent that is not connected; an earlier one works no more."""
    try:
        async with call.writing() as connection:
            made = await device_codes.create(
                connection,
                platform_id=call.platform_id,
                agent_id=agent_id,
                keys=call.keys,
                at=call.now(),
            )
    except device_codes.AgentConnectedError as error:
        raise ApiError(Code.CONFLICT, str(error)) from None
    if made is None:
        raise no_agent()
    return _secret(answer(made, CREATED))


@reads.get("/agents/device-codes/{code}/status", response_model=DeviceCodeStatus)
async def get_agent_device_code_status(code: str, call: PlatformCall) -> Response:
    """Return whether a code was redeemed."""
    async with call.reading() as connection:
        found = await device_codes.status(
            connection, platform_id=call.platform_id, code=code, keys=call.keys
        )
    if found is None:
        raise no_code()
    return answer(found)


def no_agent() -> ApiError:
    """Return the refusal of an agent id that the platform does not have."""
    return not_found(Code.REFERENCE_NOT_FOUND, "agent")


def no_code() -> ApiError:
    """Return the refusal of a code that connects nobody."""
    message = "there is no such code; check it, or ask the platform for a new one"
    return ApiError(Code.REFERENCE_NOT_FOUND, message)


def _agent(found: AgentResource | None) -> Response:
    if found is None:
        raise no_agent()
    return answer(found)


def _secret(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    return response


def _truth(said: str | None) -> bool | None:
    return None if said is None else said == "true"


@contextmanager
def _refusals(prefix: str) -> Iterator[None]:
    """Say what to change in a body that has the policy at `prefix`."""
    try:
        yield
    except AgentRefusedError as error:
        errors = error.errors
        if error.refusal is not AgentRefusal.CUSTOMER:
            errors = [one.model_copy(update={"field": prefix + one.field}) for one in errors]
        raise invalid(errors, _INVALID[error.refusal]) from None
