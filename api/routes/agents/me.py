"""What an agent sees and registers with its own token, for its customer and for nobody else."""

from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import AgentCallDependency
from cardledger.api.http.responses import CREATED, Listing, answer
from cardledger.api.routes import external_accounts as for_platforms
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

own = routing.agent_routes(None, tag=_TAG)
views = routing.agent_routes(AgentPermission.VIEW_TRANSACTIONS, tag=_TAG)
reads = routing.agent_routes(AgentPermission.MANAGE_EXTERNAL_ACCOUNTS, tag=_TAG)
writes = routing.agent_routes(AgentPermission.MANAGE_EXTERNAL_ACCOUNTS, tag=_TAG, writes=True)


@own.get(
    "/agents/me",
    response_model=AgentResource,
    responses=answers(Code.REFERENCE_NOT_FOUND),
)
async def get_own_agent(call: AgentCallDependency) -> Response:
    """Return the agent that calls, with its policy and what it has spent."""
    async with call.reading() as connection:
        found = await agents.get(
            connection, platform_id=call.platform_id, agent_id=call.agent.id, at=call.now()
        )
    if found is None:  # Deleted since it was let in.
        raise not_found(Code.REFERENCE_NOT_FOUND, "agent")
    return answer(found)


@views.get("/agents/me/internal-accounts", response_model=Page[InternalAccountResource])
async def list_agent_internal_accounts(
    query: Annotated[AgentAccountsQuery, Query()], call: AgentCallDependency
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
    return listing.answer(page)


@writes.post(
    _EXTERNAL,
    status_code=CREATED,
    response_model=ExternalAccountResource,
    responses=for_platforms.REFUSES,
)
async def create_agent_external_account(
    body: ExternalAccountCreate, call: AgentCallDependency
) -> Response:
    """Register an account of the agent's customer; `customerId` can be left out.

    In the sandbox the end of the account's identifier decides on the name check, as it does for
    platforms.
    """
    if body.customer_id not in {None, call.agent.customer_id}:
        message = "must be the agent's own customer; leave it out"
        raise invalid_field("customerId", message)
    wanted = Registration(
        customer_id=call.agent.customer_id,
        currency=body.currency,
        info=body.account_info,
        platform_account_id=body.platform_account_id,
        is_default=body.default_uma_deposit_account,
    )
    return await for_platforms.register(call, wanted)


@reads.get(_EXTERNAL, response_model=Page[ExternalAccountResource])
async def list_agent_external_accounts(
    query: Annotated[AgentExternalAccountsQuery, Query()], call: AgentCallDependency
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
    return listing.answer(page)


@reads.get(_EXTERNAL + "/{external_account_id}", response_model=ExternalAccountResource)
async def get_agent_external_account(
    external_account_id: ExternalAccountId, call: AgentCallDependency
) -> Response:
    """Return an external account of the agent's customer."""
    async with call.reading() as connection:
        found = await external_accounts.get(
            connection,
            platform_id=call.platform_id,
            account_id=external_account_id,
            customer_id=call.agent.customer_id,
        )
    if found is None:
        raise _no_account()
    return answer(found)


@writes.delete(_EXTERNAL + "/{external_account_id}", status_code=_NO_CONTENT)
async def delete_agent_external_account(
    external_account_id: ExternalAccountId, call: AgentCallDependency
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
