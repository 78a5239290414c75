"""Transfers of agents, their actions, and the transactions of their customer."""

from dataclasses import replace
from typing import Annotated

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, not_found
from cardledger.api.http.request_context import (
    AgentCall,
    AgentContext,
    RequestContext,
)
from cardledger.api.http.responses import CREATED, Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires_agent
from cardledger.api.routes import transactions
from cardledger.api.routes.payments import transfers
from cardledger.api.routes.payments.amounts import required_amount
from cardledger.ledger.agents import action_queries
from cardledger.ledger.agents import actions as agent_actions
from cardledger.ledger.agents.policy import AgentPermission
from cardledger.ledger.payments.drafts import RefusedError, Wanted
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.actions import (
    ActionType,
    AgentActionResource,
    AgentActionsQuery,
    AgentTransferCreate,
)
from cardledger.schema.wire.cards.transactions import (
    PaymentsQuery,
    TransactionResource,
)
from cardledger.schema.wire.common import (
    AgentActionId,
    AnyTransactionId,
    Page,
)
from cardledger.schema.wire.errors import Code

_TAG = "Agent Operations"

router = guarded_router(_TAG)


@router.post(
    "/agents/me/transfer-out",
    status_code=CREATED,
    response_model=AgentActionResource,
    responses=transfers.ERRORS,
)
@requires_agent(AgentPermission.CREATE_TRANSFERS, writes=True, waits=True)
async def create_agent_transfer_out(body: AgentTransferCreate, call: AgentCall) -> Response:
    """Transfer money from an internal account of the agent's customer, in one currency.

    To an external account of the customer, or to another internal one. The policy decides whether
    the transfer is executed at once, is pending the platform's approval, or is refused (403, with
    the reason). An executed transfer is returned with its result; with an `Idempotency-Key` it is
    `PENDING` or `PROCESSING`. Insufficient funds are not an error: the transaction is `FAILED`.
    """
    return await _request(call, body, "TRANSFER_OUT")


@router.post(
    "/agents/me/transfer-in",
    status_code=CREATED,
    response_model=AgentActionResource,
    responses=transfers.ERRORS,
)
@requires_agent(AgentPermission.CREATE_TRANSFERS, writes=True, waits=True)
async def create_agent_transfer_in(body: AgentTransferCreate, call: AgentCall) -> Response:
    """Collect money from an external account of the agent's customer into an internal one.

    The policy decides as for `transfer-out`, by the account that is credited. Between two internal
    accounts only the type of the action differs.
    """
    return await _request(call, body, "TRANSFER_IN")


@router.get("/agents/me/actions", response_model=Page[AgentActionResource])
@requires_agent(None)
async def list_agent_actions(
    query: Annotated[AgentActionsQuery, Query()], call: AgentCall
) -> Response:
    """List the agent's actions, newest first."""
    listing = Listing(call, "agent-actions", query)
    async with call.reading() as connection:
        page = await action_queries.of_agent(
            connection,
            call.agent,
            filters=action_queries.ActionFilters(status=query.status),
            wanted=listing.wanted(newest_first=True),
        )
    return listing.response(page)


@router.get("/agents/me/actions/{action_id}", response_model=AgentActionResource)
@requires_agent(None)
async def get_agent_action(action_id: AgentActionId, call: AgentCall) -> Response:
    """Return an action of the agent."""
    return resource_response(await _action(call, action_id, call.agent.id))


@router.get("/agents/me/transactions", response_model=Page[TransactionResource])
@requires_agent(AgentPermission.VIEW_TRANSACTIONS)
async def list_agent_transactions(
    query: Annotated[PaymentsQuery, Query()], call: AgentCall
) -> Response:
    """List the transactions of the agent's customer, newest first unless `sortOrder` is `asc`.

    If the policy has `allowedAccountIds`, only transactions that involve one of these accounts.
    """
    visible = _visibility(call)
    filters = replace(
        transactions.filters_of(query),
        customer_id=visible.customer_id,
        account_ids=visible.account_ids,
    )
    return await transactions.list_matching(call, "agent-transactions", query, filters)


@router.get("/agents/me/transactions/{transaction_id}", response_model=TransactionResource)
@requires_agent(AgentPermission.VIEW_TRANSACTIONS)
async def get_agent_transaction(transaction_id: AnyTransactionId, call: AgentCall) -> Response:
    """Return a transaction of the agent's customer, if the list contains it."""
    return await transactions.get_one(call, transaction_id, visible=_visibility(call))


def _visibility(call: AgentContext) -> transactions.Visibility:
    agent = call.agent
    allowed = agent.policy.account_restrictions.allowed_account_ids
    return transactions.Visibility(customer_id=agent.customer_id, account_ids=allowed)


async def _request(
    call: AgentContext, body: AgentTransferCreate, action_type: ActionType
) -> Response:
    wanted = Wanted(
        source=body.source.account_id,
        destination=body.destination.account_id,
        amount=required_amount(body.amount),
        payment_rail=body.destination.payment_rail,
        remittance_information=body.remittance_information,
        purpose_of_payment=body.purpose_of_payment,
    )
    try:
        async with call.writing() as connection:
            written = await agent_actions.request(
                connection,
                platform_id=call.platform_id,
                agent_id=call.agent.id,
                kind=action_type,
                wanted=wanted,
                pricing=call.services.pricing,
                reply_to=call.client.reply_list,
                inbox_key=call.client.inbox_key,
                at=call.now(),
            )
            await transfers.check_authentication(call, connection, written.action.transfer)
    except RefusedError as error:
        raise transfers.refused(error) from None
    except agent_actions.ActionRefusedError as error:
        details = {"reason": error.reason.value} if error.reason else None
        raise ApiError(Code.FORBIDDEN, str(error), details=details) from None
    await transactions.carry_out(call, written.message)
    return resource_response(await action_after(call, written), CREATED)


async def action_after(
    call: RequestContext, written: agent_actions.RecordedAction
) -> AgentActionResource:
    """Return the action after a decision; before the commit of a key, as it was written."""
    if call.attempt is not None:
        return action_queries.render(written.action)
    transfer = written.action.transfer
    assert transfer.agent_id is not None, "an action has an agent"
    return await _action(call, transfer.id, transfer.agent_id)


async def _action(call: RequestContext, action_id: Id, agent_id: Id) -> AgentActionResource:
    async with call.reading() as connection:
        action = await action_queries.get(
            connection, platform_id=call.platform_id, transaction_id=action_id, agent_id=agent_id
        )
    if action is None:
        raise no_action()
    return action_queries.render(action)


def no_action() -> ApiError:
    """Return the error for an action id that the caller does not have."""
    return not_found(Code.REFERENCE_NOT_FOUND, "action")
