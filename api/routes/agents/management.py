"""Management of agents by their platform."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, invalid, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import CREATED, Listing, capped, granting, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.agents import device_codes
from cardledger.ledger.agents import registry as agents
from cardledger.ledger.agents.refusals import AgentRefusal, AgentRefusedError
from cardledger.ledger.platforms.scopes import Permission
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

router = guarded_router(_TAG)

_INVALID: Final[Mapping[AgentRefusal, Code]] = {
    AgentRefusal.CUSTOMER: Code.INVALID_INPUT,
    AgentRefusal.POLICY: Code.INVALID_INPUT,
    AgentRefusal.CURRENCY: Code.INVALID_CURRENCY,
}


@router.post(
    "/agents",
    status_code=CREATED,
    response_model=AgentCreated,
    responses=error_responses(Code.INVALID_CURRENCY),
)
@requires(Permission.AGENTS, secrets=("deviceCode.code",))
async def create_agent(body: AgentCreate, call: PlatformCall) -> Response:
    """Create an agent that acts for a customer, with a device code to connect a program.

    Only this response contains the code, and no repetition does; it can be redeemed once, within
    fifteen minutes.
    A platform has 10,000 agents at most: one more is 409 `CONFLICT`.
    """
    with _api_errors("policy."), capped(), granting():
        async with call.giving_access() as connection:
            created = await agents.create(
                connection,
                platform_id=call.platform_id,
                customer_id=body.customer_id,
                name=body.name,
                policy=body.policy,
                granted_by=call.token.permissions,
                at=call.now(),
            )
            code = await device_codes.create(
                connection,
                platform_id=call.platform_id,
                agent_id=created.id,
                granted_by=call.token.permissions,
                keys=call.keys,
                at=call.now(),
            )
    assert code is not None
    return _secret(resource_response(AgentCreated(agent=created, device_code=code), CREATED))


@router.get("/agents", response_model=Page[AgentResource])
@requires(Permission.VIEW)
async def list_agents(query: Annotated[AgentsQuery, Query()], call: PlatformCall) -> Response:
    """List the platform's agents, newest first."""
    listing = Listing(call, "agents", query)
    filters = agents.AgentFilters(
        customer_id=query.customer_id,
        is_paused=_boolean(query.is_paused),
        is_connected=_boolean(query.is_connected),
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
    return await listing.response_in_turns(page, call.services.loop_turns)


@router.get("/agents/{agent_id}", response_model=AgentResource)
@requires(Permission.VIEW)
async def get_agent(agent_id: AgentId, call: PlatformCall) -> Response:
    """Return an agent."""
    async with call.reading() as connection:
        agent = await agents.get(
            connection, platform_id=call.platform_id, agent_id=agent_id, at=call.now()
        )
    return _agent(agent)


@router.patch("/agents/{agent_id}", response_model=AgentResource)
@requires(Permission.AGENTS)
async def update_agent(agent_id: AgentId, body: AgentUpdate, call: PlatformCall) -> Response:
    """Rename, pause or resume an agent; effective from its next request.

    A paused agent can use read operations only.
    """
    if not body.model_fields_set:
        raise ApiError(Code.INVALID_INPUT, "Nothing to change; send name or isPaused.")
    with granting():
        async with call.giving_access() as connection:
            changed = await agents.change(
                connection,
                platform_id=call.platform_id,
                agent_id=agent_id,
                changes=body.model_dump(exclude_unset=True),
                granted_by=call.token.permissions,
                at=call.now(),
            )
    return _agent(changed)


@router.delete("/agents/{agent_id}", status_code=_NO_CONTENT)
@requires(Permission.AGENTS)
async def delete_agent(agent_id: AgentId, call: PlatformCall) -> Response:
    """Delete an agent; its access token is refused immediately."""
    async with call.writing() as connection:
        existed = await agents.delete(
            connection, platform_id=call.platform_id, agent_id=agent_id, at=call.now()
        )
    if not existed:
        raise no_agent()
    return Response(status_code=_NO_CONTENT)


@router.patch(
    "/agents/{agent_id}/policy",
    response_model=AgentResource,
    responses=error_responses(Code.INVALID_CURRENCY),
)
@requires(Permission.AGENTS)
async def update_agent_policy(
    agent_id: AgentId, body: AgentPolicyUpdate, call: PlatformCall
) -> Response:
    """Change parts of an agent's policy; effective from the agent's next request.

    Omitted fields stay, in `spendingLimits`, `accountRestrictions` and `approvalThresholds` as
    well. A list replaces the whole list. Null removes an optional field.
    """
    if not body.model_fields_set:
        raise ApiError(Code.INVALID_INPUT, "Nothing to change; send a field of the policy.")
    with _api_errors(""), granting():
        async with call.giving_access() as connection:
            changed = await agents.change_policy(
                connection,
                platform_id=call.platform_id,
                agent_id=agent_id,
                changes=body.model_dump(mode="json", by_alias=True, exclude_unset=True),
                granted_by=call.token.permissions,
                at=call.now(),
            )
    return _agent(changed)


@router.post("/agents/{agent_id}/device-codes", status_code=CREATED, response_model=AgentDeviceCode)
@requires(Permission.AGENTS, secrets=("code",))
async def create_agent_device_code(agent_id: AgentId, call: PlatformCall) -> Response:
    """Create a new device code for an agent that is not connected; it replaces earlier codes.

    A repetition with the same `Idempotency-Key` returns it without the `code`.
    An agent gets 20 codes in fifteen minutes at most: one more is 409 `CONFLICT`.
    """
    try:
        with capped(), granting():
            async with call.giving_access() as connection:
                device_code = await device_codes.create(
                    connection,
                    platform_id=call.platform_id,
                    agent_id=agent_id,
                    granted_by=call.token.permissions,
                    keys=call.keys,
                    at=call.now(),
                )
    except device_codes.AgentConnectedError as error:
        raise ApiError(Code.CONFLICT, str(error)) from None
    if device_code is None:
        raise no_agent()
    return _secret(resource_response(device_code, CREATED))


@router.get("/agents/device-codes/{code}/status", response_model=DeviceCodeStatus)
@requires(Permission.VIEW)
async def get_agent_device_code_status(code: str, call: PlatformCall) -> Response:
    """Return the status of a device code."""
    async with call.reading() as connection:
        status = await device_codes.status(
            connection, platform_id=call.platform_id, code=code, keys=call.keys
        )
    if status is None:
        raise no_code()
    return resource_response(status)


def no_agent() -> ApiError:
    """Return the error for an agent id that the platform does not have."""
    return not_found(Code.REFERENCE_NOT_FOUND, "agent")


def no_code() -> ApiError:
    """Return the error for an unknown device code."""
    message = "Unknown device code; check it, or request a new one from the platform."
    return ApiError(Code.REFERENCE_NOT_FOUND, message)


def _agent(agent: AgentResource | None) -> Response:
    if agent is None:
        raise no_agent()
    return resource_response(agent)


def _secret(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    return response


def _boolean(value: str | None) -> bool | None:
    return None if value is None else value == "true"


@contextmanager
def _api_errors(prefix: str) -> Iterator[None]:
    """Turn a refusal into an error that names fields of the policy below `prefix`."""
    try:
        yield
    except AgentRefusedError as refused:
        errors = refused.errors
        if refused.refusal is not AgentRefusal.CUSTOMER:
            errors = [error.model_copy(update={"field": prefix + error.field}) for error in errors]
        raise invalid(errors, _INVALID[refused.refusal]) from None
