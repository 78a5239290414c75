"""Operations of an agent on itself and on the accounts of its customer."""

from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import AgentCall
from cardledger.api.http.responses import CREATED, Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires_agent
from cardledger.api.routes.customers import external_accounts as platform_accounts
from cardledger.ledger.agents import registry as agents
from cardledger.ledger.agents.policy import AgentPermission
from cardledger.ledger.customers import external_accounts
from cardledger.ledger.customers.external_accounts import Registration
from cardledger.ledger.projections import accounts
from cardledger.schema.wire.agents.agents import (
    AgentAccountsQuery,
    AgentExternalAccountsQuery,
    AgentResource,
)
from cardledger.schema.wire.common import ExternalAccountId, Page
from cardledger.schema.wire.customers.accounts import InternalAccountResource
from cardledger.schema.wire.customers.external_accounts import (
    ExternalAccountCreate,
    ExternalAccountResource,
)
from cardledger.schema.wire.errors import Code

_TAG = "Agent Operations"
_EXTERNAL = "/agents/me/external-accounts"
_NO_CONTENT = 204

router = guarded_router(_TAG)


@router.get(
    "/agents/me",
    response_model=AgentResource,
    responses=error_responses(Code.REFERENCE_NOT_FOUND),
)
@requires_agent(None)
async def get_own_agent(call: AgentCall) -> Response:
    """Return the calling agent, with its policy and its usage."""
    async with call.reading() as connection:
        agent = await agents.get(
            connection, platform_id=call.platform_id, agent_id=call.agent.id, at=call.now()
        )
    if agent is None:  # Deleted since it was authenticated.
        raise not_found(Code.REFERENCE_NOT_FOUND, "agent")
    return resource_response(agent)


@router.get("/agents/me/internal-accounts", response_model=Page[InternalAccountResource])
@requires_agent(AgentPermission.VIEW_TRANSACTIONS)
async def list_agent_internal_accounts(
    query: Annotated[AgentAccountsQuery, Query()], call: AgentCall
) -> Response:
    """List the internal accounts of the agent's customer that its policy allows, oldest first."""
    listing = Listing(call, "agent-internal-accounts", query)
    filters = accounts.AccountFilters(
        customer_id=call.agent.customer_id,
        currency=query.currency,
        type=query.type,
        ids=call.agent.policy.account_restrictions.allowed_account_ids,
    )
    async with call.reading() as connection:
        page = await accounts.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=listing.wanted(newest_first=False),
        )
    return listing.response(page)


@router.post(
    _EXTERNAL,
    status_code=CREATED,
    response_model=ExternalAccountResource,
    responses=platform_accounts.REGISTRATION_ERRORS,
)
@requires_agent(AgentPermission.MANAGE_EXTERNAL_ACCOUNTS, writes=True)
async def create_agent_external_account(body: ExternalAccountCreate, call: AgentCall) -> Response:
    """Register an external account of the agent's customer; `customerId` is optional.

    In the sandbox the account's identifier decides the beneficiary check, as it does for platforms.
    """
    if body.customer_id not in {None, call.agent.customer_id}:
        message = "must be the agent's customer; leave it out"
        raise invalid_field("customerId", message)
    wanted = Registration(
        customer_id=call.agent.customer_id,
        currency=body.currency,
        info=body.account_info,
        platform_account_id=body.platform_account_id,
        is_default=body.default_uma_deposit_account,
    )
    return await platform_accounts.register(call, wanted)


@router.get(_EXTERNAL, response_model=Page[ExternalAccountResource])
@requires_agent(AgentPermission.MANAGE_EXTERNAL_ACCOUNTS)
async def list_agent_external_accounts(
    query: Annotated[AgentExternalAccountsQuery, Query()], call: AgentCall
) -> Response:
    """List the external accounts of the agent's customer, oldest first."""
    listing = Listing(call, "agent-external-accounts", query)
    filters = external_accounts.ExternalAccountFilters(
        customer_id=call.agent.customer_id, currency=query.currency
    )
    async with call.reading() as connection:
        page = await external_accounts.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=listing.wanted(newest_first=False),
        )
    return listing.response(page)


@router.get(_EXTERNAL + "/{external_account_id}", response_model=ExternalAccountResource)
@requires_agent(AgentPermission.MANAGE_EXTERNAL_ACCOUNTS)
async def get_agent_external_account(
    external_account_id: ExternalAccountId, call: AgentCall
) -> Response:
    """Return an external account of the agent's customer."""
    async with call.reading() as connection:
        account = await external_accounts.get(
            connection,
            platform_id=call.platform_id,
            account_id=external_account_id,
            customer_id=call.agent.customer_id,
        )
    if account is None:
        raise _no_account()
    return resource_response(account)


@router.delete(_EXTERNAL + "/{external_account_id}", status_code=_NO_CONTENT)
@requires_agent(AgentPermission.MANAGE_EXTERNAL_ACCOUNTS, writes=True)
async def delete_agent_external_account(
    external_account_id: ExternalAccountId, call: AgentCall
) -> Response:
    """Delete an external account of the agent's customer."""
    async with call.writing() as connection:
        existed = await external_accounts.delete(
            connection,
            platform_id=call.platform_id,
            account_id=external_account_id,
            customer_id=call.agent.customer_id,
            at=call.now(),
        )
    if not existed:
        raise _no_account()
    return Response(status_code=_NO_CONTENT)


def _no_account() -> ApiError:
    return not_found(Code.REFERENCE_NOT_FOUND, "external account")
