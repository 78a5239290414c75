"""Agent actions that await the platform's approval."""

from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http.request_context import PlatformCall, PlatformContext
from cardledger.api.http.responses import Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes import transactions
from cardledger.api.routes.agents.actions import action_after, no_action
from cardledger.ledger.agents import action_queries
from cardledger.ledger.agents import actions as agent_actions
from cardledger.ledger.agents.actions import Decision
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.actions import AgentActionResource, ApprovalsQuery
from cardledger.schema.wire.cards.transactions import RejectRequest
from cardledger.schema.wire.common import AgentActionId, AgentId, Page

router = guarded_router("Agent Management")


@router.get("/agents/approvals", response_model=Page[AgentActionResource])
@requires(Permission.VIEW)
async def list_agent_approvals(
    query: Annotated[ApprovalsQuery, Query()], call: PlatformCall
) -> Response:
    """List the actions pending approval, newest first unless `sortOrder` is `asc`."""
    listing = Listing(call, "agent-approvals", query)
    filters = action_queries.ActionFilters(
        agent_id=query.agent_id,
        customer_id=query.customer_id,
        created_from=query.start_date,
        created_to=query.end_date,
    )
    async with call.reading() as connection:
        page = await action_queries.pending_approval(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=listing.wanted(newest_first=query.sort_order == "desc"),
        )
    return listing.response(page)


@router.post(
    "/agents/{agent_id}/actions/{action_id}/approve",
    response_model=AgentActionResource,
    responses=transactions.DECISION_ERRORS,
)
@requires(Permission.TRANSACT, Permission.VIEW, waits=True)
async def approve_agent_action(
    agent_id: AgentId, action_id: AgentActionId, call: PlatformCall
) -> Response:
    """Approve an action of an agent: the same as approving its transaction.

    It ends as `FAILED` if the agent's policy no longer allows it or its accounts cannot execute it.
    """
    return await _decide(call, agent_id, action_id, Decision(approve=True))


@router.post(
    "/agents/{agent_id}/actions/{action_id}/reject",
    response_model=AgentActionResource,
    responses=transactions.DECISION_ERRORS,
)
@requires(Permission.TRANSACT, Permission.VIEW)
async def reject_agent_action(
    agent_id: AgentId,
    action_id: AgentActionId,
    call: PlatformCall,
    body: RejectRequest | None = None,
) -> Response:
    """Reject an action of an agent: the same as rejecting its transaction."""
    reason = None if body is None else body.reason
    return await _decide(call, agent_id, action_id, Decision(approve=False, reason=reason))


async def _decide(
    call: PlatformContext, agent_id: Id, action_id: Id, decision: Decision
) -> Response:
    try:
        async with call.writing() as connection:
            written = await agent_actions.resolve(
                connection,
                platform_id=call.platform_id,
                transaction_id=action_id,
                agent_id=agent_id,
                decision=decision,
                pricing=call.services.pricing,
                reply_to=call.client.reply_list,
                inbox_key=call.client.inbox_key,
                at=call.now(),
            )
    except agent_actions.NotPendingError as error:
        raise transactions.not_pending(error.status) from None
    if written is None:
        raise no_action()
    await transactions.carry_out(call, written.message)
    return resource_response(await action_after(call, written))
