"""Quotes that agents create and execute for their customer, within their policy."""

from typing import Final

from fastapi import Response

from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import AgentCall
from cardledger.api.http.responses import CREATED, resource_response
from cardledger.api.http.routing import guarded_router, requires_agent
from cardledger.api.routes import transactions
from cardledger.api.routes.agents.actions import action_after
from cardledger.api.routes.exchange import outside, quotes
from cardledger.ledger.agents import actions as agent_actions
from cardledger.ledger.agents.policy import AgentPermission, RefusalReason
from cardledger.ledger.quotes.records import Quote
from cardledger.schema.ids import Id
from cardledger.schema.wire.agents.actions import AgentActionResource
from cardledger.schema.wire.common import QuoteId, TypedId
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.exchange.quotes import (
    QuoteCreate,
    QuoteRealtimeFundingSource,
    QuoteResource,
)

router = guarded_router("Agent Operations")

_NOT_SUPPORTED: Final = {
    "immediately_execute": ("immediatelyExecute", "is not for agents; execute the quote"),
    "platform_fee_override": ("platformFeeOverride", "is not for agents; leave it out"),
}


@router.post(
    "/agents/me/quotes", status_code=CREATED, response_model=QuoteResource, responses=quotes.ERRORS
)
@requires_agent(AgentPermission.CREATE_QUOTES, writes=True, prepare=outside.ask_institution)
async def create_agent_quote(body: QuoteCreate, call: AgentCall) -> Response:
    """Create a quote that is paid from an internal account of the agent's customer.

    Nothing is spent before it is executed. An account that the policy does not allow is 403.
    """
    for field, (name, message) in _NOT_SUPPORTED.items():
        if getattr(body, field):
            raise invalid_field(name, message)
    if isinstance(body.source, QuoteRealtimeFundingSource):
        message = "must be ACCOUNT: agents pay from accounts of their customer"
        raise invalid_field("source.sourceType", message)
    customer_id = call.agent.customer_id
    if body.source.customer_id not in {None, customer_id}:
        raise invalid_field("source.customerId", "must be the agent's customer; leave it out")
    wanted = quotes.wanted_of(body, call.keys, customer_id=customer_id, agent_id=call.agent.id)
    for account in (wanted.source, wanted.destination):
        if isinstance(account, TypedId) and account.resource == "InternalAccount":
            _check_allowed(call, account.key)
    return await quotes.create(call, wanted, check=lambda quote: _check_receiver(call, quote))


def _check_receiver(call: AgentCall, quote: Quote) -> None:
    """Check the account behind a UMA address: it is internal where the receiver is a customer."""
    if quote.destination_account_id is not None and not quote.is_external:
        _check_allowed(call, quote.destination_account_id)


def _check_allowed(call: AgentCall, account_id: Id) -> None:
    """Raise ApiError unless the policy of the agent allows an internal account."""
    if not call.agent.policy.allows_account(account_id):
        message = "The agent's policy does not allow the account; use one of allowedAccountIds."
        details = {"reason": RefusalReason.ACCOUNT_NOT_ALLOWED.value}
        raise ApiError(Code.FORBIDDEN, message, details=details)


@router.get("/agents/me/quotes/{quote_id}", response_model=QuoteResource)
@requires_agent(None)
async def get_agent_quote(quote_id: QuoteId, call: AgentCall) -> Response:
    """Return a quote of the agent."""
    found = await quotes.shown(call, quote_id, agent_id=call.agent.id)
    return resource_response(await quotes.rendered(call, found))


@router.post(
    "/agents/me/quotes/{quote_id}/execute",
    response_model=AgentActionResource,
    responses=error_responses(Code.CONFLICT),
)
@requires_agent(AgentPermission.EXECUTE_QUOTES, writes=True, waits=True)
async def execute_agent_quote(quote_id: QuoteId, call: AgentCall) -> Response:
    """Execute a quote of the agent.

    The policy decides whether it is executed at once, is pending the platform's approval, or is
    refused (403, with the reason). Limits are in the currency of the policy, into which another
    one is converted, rounded up. A quote that expires before its approval fails. Insufficient funds
    are not an error: the transaction is `FAILED`.
    """
    try:
        with quotes.refusals():
            async with call.writing() as connection:
                written = await agent_actions.execute_quote(
                    connection,
                    platform_id=call.platform_id,
                    agent_id=call.agent.id,
                    quote_id=quote_id,
                    pricing=call.services.pricing,
                    reply_to=call.client.reply_list,
                    inbox_key=call.client.inbox_key,
                    at=call.now(),
                )
                if written is None:
                    raise quotes.no_quote()
    except agent_actions.ActionRefusedError as error:
        details = {"reason": error.reason.value} if error.reason else None
        raise ApiError(Code.FORBIDDEN, str(error), details=details) from None
    await transactions.carry_out(call, written.message)
    return resource_response(await action_after(call, written))
