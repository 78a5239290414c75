"""Transfers of agents, their actions, and the transactions of their customer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import (
    AgentCall,
    AgentContext,
    RequestContext,
)
from cardledger.api.http.responses import CREATED, Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires_agent
from cardledger.api.routes import transactions
from cardledger.ledger.agents import action_queries
from cardledger.ledger.agents import actions as agent_actions
from cardledger.ledger.agents.actions import ActionRefusal, TransferRequest
from cardledger.ledger.agents.policy import AgentPermission
from cardledger.ledger.customers import external_accounts
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
    MAX_AMOUNT,
    AgentActionId,
    AnyTransactionId,
    Page,
    TypedId,
)
from cardledger.schema.wire.errors import Code

_TAG = "Agent Operations"

router = guarded_router(_TAG)

_CODES: Final[Mapping[ActionRefusal, Code]] = {
    ActionRefusal.AGENT: Code.FORBIDDEN,
    ActionRefusal.POLICY: Code.FORBIDDEN,
    ActionRefusal.SAME_ACCOUNT: Code.SELF_PAYMENT,
    ActionRefusal.UNKNOWN_SOURCE: Code.REFERENCE_NOT_FOUND,
    ActionRefusal.UNKNOWN_DESTINATION: Code.REFERENCE_NOT_FOUND,
    ActionRefusal.CURRENCY: Code.INVALID_CURRENCY,
}
_TRANSFER_ERRORS: Final = error_responses(
    *_CODES.values(), Code.INVALID_AMOUNT, Code.NOT_IMPLEMENTED
)


@router.post(
    "/agents/me/transfer-out",
    status_code=CREATED,
    response_model=AgentActionResource,
    responses=_TRANSFER_ERRORS,
)
@requires_agent(AgentPermission.CREATE_TRANSFERS, writes=True)
async def create_agent_transfer_out(body: AgentTransferCreate, call: AgentCall) -> Response:
    """Transfer money between two internal accounts of the agent's customer, in one currency.

    The policy decides whether the transfer is executed at once, is pending the platform's approval,
    or is refused (403, with the reason). An executed transfer is returned with its result; with an
    `Idempotency-Key` it is `PROCESSING`. Insufficient funds are not an error: the transaction is
    `FAILED`. Transfers to external accounts are not implemented (501).
    """
    return await _request(call, body, "TRANSFER_OUT")


@router.post(
    "/agents/me/transfer-in",
    status_code=CREATED,
    response_model=AgentActionResource,
    responses=_TRANSFER_ERRORS,
)
@requires_agent(AgentPermission.CREATE_TRANSFERS, writes=True)
async def create_agent_transfer_in(body: AgentTransferCreate, call: AgentCall) -> Response:
    """Transfer money like `transfer-out`; only the type of the action differs."""
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
    wanted = TransferRequest(
        type=action_type,
        amount=_amount(body.amount),
        source_account_id=await _account(call, body.source.account_id, "source"),
        destination_account_id=await _account(call, body.destination.account_id, "destination"),
        remittance_information=body.remittance_information,
        purpose_of_payment=body.purpose_of_payment,
    )
    if body.destination.payment_rail is not None:
        message = "applies to external accounts only; leave it out"
        raise invalid_field("destination.paymentRail", message)
    try:
        async with call.writing() as connection:
            written = await agent_actions.request(
                connection,
                platform_id=call.platform_id,
                agent_id=call.agent.id,
                wanted=wanted,
                reply_to=call.client.reply_list,
                inbox_key=call.client.inbox_key,
                at=call.now(),
            )
    except agent_actions.ActionRefusedError as error:
        details = {"reason": error.reason.value} if error.reason else None
        raise ApiError(_CODES[error.refusal], str(error), details=details) from None
    await transactions.carry_out(call, written)
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


def _amount(amount: int | None) -> int:
    if amount is None:
        raise invalid_field("amount", "is required", Code.INVALID_AMOUNT)
    if not 0 < amount <= MAX_AMOUNT:
        message = f"must be from 1 to {MAX_AMOUNT}"
        raise invalid_field("amount", message, Code.INVALID_AMOUNT)
    return amount


async def _account(call: AgentContext, account_id: TypedId, field: str) -> Id:
    """Return the key of an internal account: transfers to others are not implemented.

    Raises: ApiError.
    """
    if account_id.resource == "InternalAccount":
        return account_id.key
    async with call.reading() as connection:
        account = await external_accounts.get(
            connection,
            platform_id=call.platform_id,
            account_id=account_id.key,
            customer_id=call.agent.customer_id,
        )
    if account is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "external account")
    message = (
        f"Transfers with an external account as {field} are not implemented; send two internal"
        " accounts of the customer in one currency."
    )
    raise ApiError(Code.NOT_IMPLEMENTED, message, details={"field": f"{field}.accountId"})


def no_action() -> ApiError:
    """Return the error for an action id that the caller does not have."""
    return not_found(Code.REFERENCE_NOT_FOUND, "action")
