"""What agents ask for, and what their platforms say to it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, invalid_field, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import (
    AgentCall,
    AgentCallDependency,
    AnyCall,
    Call,
    PlatformCall,
)
from cardledger.api.http.responses import CREATED, Listing, answer
from cardledger.api.routes import transactions
from cardledger.ledger.agents import action_queries
from cardledger.ledger.agents import actions as agent_actions
from cardledger.ledger.agents.actions import ActionRefusal, Decision, TransferRequest
from cardledger.ledger.agents.policy import AgentPermission
from cardledger.ledger.customers import external_accounts
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.actions import (
    ActionType,
    AgentActionResource,
    AgentActionsQuery,
    AgentTransferCreate,
    ApprovalsQuery,
)
from cardledger.schema.wire.cards.transactions import (
    PaymentsQuery,
    RejectRequest,
    TransactionResource,
)
from cardledger.schema.wire.common import (
    MAX_AMOUNT,
    AgentActionId,
    AgentId,
    AnyTransactionId,
    Page,
    TypedId,
)
from cardledger.schema.wire.errors import Code

_AGENT_TAG = "Agent Operations"
_TAG = "Agent Management"

own = routing.agent_routes(None, tag=_AGENT_TAG)
views = routing.agent_routes(AgentPermission.VIEW_TRANSACTIONS, tag=_AGENT_TAG)
transfers = routing.agent_routes(AgentPermission.CREATE_TRANSFERS, tag=_AGENT_TAG, writes=True)
approvals = routing.routes(Permission.VIEW, tag=_TAG)
decisions = routing.routes(Permission.TRANSACT, tag=_TAG)

_CODES: Final[Mapping[ActionRefusal, Code]] = {
    ActionRefusal.AGENT: Code.FORBIDDEN,
    ActionRefusal.POLICY: Code.FORBIDDEN,
    ActionRefusal.SAME_ACCOUNT: Code.SELF_PAYMENT,
    ActionRefusal.UNKNOWN_SOURCE: Code.REFERENCE_NOT_FOUND,
    ActionRefusal.UNKNOWN_DESTINATION: Code.REFERENCE_NOT_FOUND,
    ActionRefusal.CURRENCY: Code.INVALID_CURRENCY,
}
_REFUSES: Final = answers(*_CODES.values(), Code.INVALID_AMOUNT, Code.NOT_IMPLEMENTED)


# --- by the agent ------------------------------------------------------------------------------


@transfers.post(
    "/agents/me/transfer-out",
    status_code=CREATED,
    response_model=AgentActionResource,
    responses=_REFUSES,
)
async def create_agent_transfer_out(
    body: AgentTransferCreate, call: AgentCallDependency
) -> Response:
    """Move money between two internal accounts of the agent's customer, in one currency.

    The policy decides whether that happens at once, waits for the platform's approval, or is
    refused (403, with the reason). What happens at once is answered with what came of it; with an
    `Idempotency-Key` the answer is `PROCESSING`. A lack of funds is no error but a transaction
    that is `FAILED`. External accounts cannot be paid from here yet (501).
    """
    return await _request(call, body, "TRANSFER_OUT")


@transfers.post(
    "/agents/me/transfer-in",
    status_code=CREATED,
    response_model=AgentActionResource,
    responses=_REFUSES,
)
async def create_agent_transfer_in(
    body: AgentTransferCreate, call: AgentCallDependency
) -> Response:
    """Do as `transfer-out` does; what is different is the type of the action."""
    return await _request(call, body, "TRANSFER_IN")


@own.get("/agents/me/actions", response_model=Page[AgentActionResource])
async def list_agent_actions(
    query: Annotated[AgentActionsQuery, Query()], call: AgentCallDependency
) -> Response:
    """List what the agent has asked for, newest first."""
    listing = Listing(call, "agent-actions", query)
    async with call.reading() as connection:
        page = await action_queries.of_agent(
            connection,
            call.agent,
            filters=action_queries.ActionFilters(status=query.status),
            wanted=listing.wanted(newest_first=True),
        )
    return listing.answer(page)


@own.get("/agents/me/actions/{action_id}", response_model=AgentActionResource)
async def get_agent_action(action_id: AgentActionId, call: AgentCallDependency) -> Response:
    """Return something that the agent has asked for."""
    return answer(await _action(call, action_id, call.agent.id))


@views.get("/agents/me/transactions", response_model=Page[TransactionResource])
async def list_agent_transactions(
    query: Annotated[PaymentsQuery, Query()], call: AgentCallDependency
) -> Response:
    """List the transactions of the agent's customer, newest first unless `sortOrder` differs.

    Where its policy has `allowedAccountIds`, only those of which one of these accounts is a part.
    """
    own = _sight(call)
    filters = replace(
        transactions.filters_of(query), customer_id=own.customer_id, account_ids=own.account_ids
    )
    return await transactions.list_matching(call, "agent-transactions", query, filters)


@views.get("/agents/me/transactions/{transaction_id}", response_model=TransactionResource)
async def get_agent_transaction(
    transaction_id: AnyTransactionId, call: AgentCallDependency
) -> Response:
    """Return a transaction of the agent's customer that the list shows."""
    return await transactions.get_one(call, transaction_id, within=_sight(call))


# --- by the platform ---------------------------------------------------------------------------


@approvals.get("/agents/approvals", response_model=Page[AgentActionResource])
async def list_agent_approvals(
    query: Annotated[ApprovalsQuery, Query()], call: PlatformCall
) -> Response:
    """List the actions that wait for approval, newest first unless `sortOrder` says otherwise."""
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
    return listing.answer(page)


@decisions.post(
    "/agents/{agent_id}/actions/{action_id}/approve",
    response_model=AgentActionResource,
    responses=transactions.DECIDED,
)
async def approve_agent_action(
    agent_id: AgentId, action_id: AgentActionId, call: PlatformCall
) -> Response:
    """Let happen what an agent has asked for: the same as approving its transaction.

    What its policy forbids by now, or its accounts cannot do, ends as `FAILED`.
    """
    return await _decide(call, agent_id, action_id, Decision(approve=True))


@decisions.post(
    "/agents/{agent_id}/actions/{action_id}/reject",
    response_model=AgentActionResource,
    responses=transactions.DECIDED,
)
async def reject_agent_action(
    agent_id: AgentId,
    action_id: AgentActionId,
    call: PlatformCall,
    body: RejectRequest | None = None,
) -> Response:
    """Refuse what an agent has asked for: the same as rejecting its transaction."""
    reason = None if body is None else body.reason
    return await _decide(call, agent_id, action_id, Decision(approve=False, reason=reason))


def _sight(call: AgentCall) -> transactions.Sight:
    agent = call.agent
    allowed = agent.policy.account_restrictions.allowed_account_ids
    return transactions.Sight(customer_id=agent.customer_id, account_ids=allowed)


async def _request(call: AgentCall, body: AgentTransferCreate, kind: ActionType) -> Response:
    wanted = TransferRequest(
        type=kind,
        amount=_amount(body.amount),
        source_account_id=await _account(call, body.source.account_id, "source"),
        destination_account_id=await _account(call, body.destination.account_id, "destination"),
        remittance_information=body.remittance_information,
        purpose_of_payment=body.purpose_of_payment,
    )
    if body.destination.payment_rail is not None:
        message = "is for external accounts; leave it out"
        raise invalid_field("destination.paymentRail", message)
    try:
        async with call.writing() as connection:
            written = await agent_actions.request(
                connection,
                platform_id=call.platform_id,
                agent_id=call.agent.id,
                wanted=wanted,
                reply_to=call.client.reply_list,
                at=call.now(),
            )
    except agent_actions.ActionRefusedError as error:
        details = {"reason": error.reason.value} if error.reason else None
        raise ApiError(_CODES[error.refusal], str(error), details=details) from None
    await transactions.carry_out(call, written)
    return answer(await _after(call, written), CREATED)


async def _decide(call: Call, agent_id: Id, action_id: Id, decision: Decision) -> Response:
    try:
        async with call.writing() as connection:
            written = await agent_actions.resolve(
                connection,
                platform_id=call.platform_id,
                transaction_id=action_id,
                agent_id=agent_id,
                decision=decision,
                reply_to=call.client.reply_list,
                at=call.now(),
            )
    except agent_actions.NotPendingError as error:
        raise transactions.not_pending(error.status) from None
    if written is None:
        raise _no_action()
    await transactions.carry_out(call, written)
    return answer(await _after(call, written))


async def _after(call: AnyCall, written: agent_actions.RecordedAction) -> AgentActionResource:
    """Return the action as it is now; before the commit of a key, as it was written."""
    if call.attempt is not None:
        return action_queries.render(written.action)
    transfer = written.action.transfer
    assert transfer.agent_id is not None, "an action has an agent"
    return await _action(call, transfer.id, transfer.agent_id)


async def _action(call: AnyCall, action_id: Id, agent_id: Id) -> AgentActionResource:
    async with call.reading() as connection:
        found = await action_queries.get(
            connection, platform_id=call.platform_id, transaction_id=action_id, agent_id=agent_id
        )
    if found is None:
        raise _no_action()
    return action_queries.render(found)


def _amount(said: int | None) -> int:
    if said is None:
        raise invalid_field("amount", "is required", Code.INVALID_AMOUNT)
    if not 0 < said <= MAX_AMOUNT:
        message = f"must be from 1 to {MAX_AMOUNT}"
        raise invalid_field("amount", message, Code.INVALID_AMOUNT)
    return said


async def _account(call: AgentCall, account_id: TypedId, field: str) -> Id:
    """Return the key of an internal account; there is no other way to move money yet.

    Raises: ApiError.
    """
    if account_id.resource == "InternalAccount":
        return account_id.key
    async with call.reading() as connection:
        found = await external_accounts.get(
            connection,
            platform_id=call.platform_id,
            account_id=account_id.key,
            customer_id=call.agent.customer_id,
        )
    if found is None:
        raise not_found(Code.REFERENCE_NOT_FOUND, "external account")
    message = (
        f"the {field} is an external account, which cannot be paid from here yet; name two"
        " internal accounts of the customer in one currency"
    )
    raise ApiError(Code.NOT_IMPLEMENTED, message, details={"field": f"{field}.accountId"})


def _no_action() -> ApiError:
    return not_found(Code.REFERENCE_NOT_FOUND, "action")
