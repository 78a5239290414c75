"""Steps of a payment that its platform takes: approve, reject, cancel, confirm the receipt.

They need the permission to view: the caller has named a transaction, and the response shows all
that is known of its counterparty.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from fastapi import Response

from cardledger.api.http import idempotency
from cardledger.api.http.errors import ApiError, invalid
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext, RequestContext
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes import transactions
from cardledger.ledger.agents import actions as agent_actions
from cardledger.ledger.agents.actions import Decision
from cardledger.ledger.core.payments.payment import Kind
from cardledger.ledger.payments import approvals, messages, requests
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.projections import payment_resources, transfers
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.queries import transactions as transaction_queries
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.transactions import (
    ApproveRequest,
    CancelRequest,
    ConfirmRequest,
    RejectRequest,
    TransactionResource,
)
from cardledger.schema.wire.common import AnyTransactionId, TypedId
from cardledger.schema.wire.errors import Code, FieldError
from cardledger.schema.wire.outcomes import OutcomeType

router = guarded_router("Transactions")

_CANCELLABLE: Final = frozenset({Kind.OUT, Kind.IN})
"""The kinds of payments that can be cancelled, before they are handed to their rail."""


@router.post(
    "/transactions/{transaction_id}/approve",
    response_model=TransactionResource,
    responses=error_responses(
        Code.TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL, Code.MISSING_MANDATORY_USER_INFO
    ),
)
@requires(Permission.TRANSACT, Permission.VIEW, waits=True)
async def approve_transaction(
    transaction_id: AnyTransactionId, call: PlatformCall, body: ApproveRequest | None = None
) -> Response:
    """Approve a transaction that is pending the platform's approval.

    A transfer that an agent requested ends as `FAILED`, without moving money, if the agent's policy
    no longer allows it or its accounts cannot execute it. An incoming payment needs the fields of
    the receiver that were requested, in `receiverCustomerInfo`. The response waits for the ledger;
    with an `Idempotency-Key` it is `PROCESSING`, and a webhook reports the result.
    """
    given = {} if body is None else body.receiver_customer_info or {}
    return await _decide(call, transaction_id, Decision(approve=True), given)


@router.post(
    "/transactions/{transaction_id}/reject",
    response_model=TransactionResource,
    responses=transactions.DECISION_ERRORS,
)
@requires(Permission.TRANSACT, Permission.VIEW, waits=True)
async def reject_transaction(
    transaction_id: AnyTransactionId, call: PlatformCall, body: RejectRequest | None = None
) -> Response:
    """Reject a transaction that is pending the platform's approval; no money moves."""
    reason = None if body is None else body.reason
    return await _decide(call, transaction_id, Decision(approve=False, reason=reason), {})


async def _send_cancellation(call: RequestContext, event: Mapping[str, Any]) -> Response:
    key = Id.parse(event["transferId"])
    async with call.writing() as connection:
        transfer = await transaction_queries.transfer(
            connection, platform_id=call.platform_id, transfer_id=key
        )
        assert transfer is not None, "its row was read before, and rows stay"
        message = await requests.cancel(
            connection,
            transfer,
            inbox_key=call.client.inbox_key,
            reply_to=call.client.reply_list,
            at=call.now(),
        )
    outcome = await call.client.outcome_of(message)
    after = await transactions.one(call, TypedId("Transaction", key))
    if OutcomeType.APPLIED not in {outcome.outcome, outcome.first_outcome}:
        raise _not_cancellable(after.status)
    return resource_response(after)


@router.post(
    "/transactions/{transaction_id}/cancel",
    response_model=TransactionResource,
    responses=error_responses(Code.TRANSACTION_NOT_CANCELLABLE),
)
@requires(Permission.TRANSACT, Permission.VIEW, send=_send_cancellation)
async def cancel_transaction(
    transaction_id: AnyTransactionId, call: PlatformCall, body: CancelRequest | None = None
) -> Response:
    """Cancel a transfer to or from an external account that was not handed to its rail.

    It ends as `FAILED`, and is refunded. One that an agent requested and that awaits the platform's
    approval is rejected. Transactions of other types cannot be cancelled (400).
    """
    reason = None if body is None else body.reason
    transfer = await _transfer(call, transaction_id)
    if transfer is None or transfer.kind not in _CANCELLABLE or transfer.peer_id is not None:
        shown = await transactions.one(call, transaction_id)
        message = "Only transfers to and from external accounts can be cancelled."
        raise ApiError(Code.INVALID_INPUT, message, details={"type": shown.type})
    if transfer.status != transfers.PENDING:
        raise _not_cancellable(transfer.status)
    if transfer.awaits_approval:
        return await _decide(call, transaction_id, Decision(approve=False, reason=reason), {})
    event = {"transferId": str(transfer.id)}
    return await _send_cancellation(call, await idempotency.settle(call, event))


@router.post(
    "/transactions/{transaction_id}/confirm",
    response_model=TransactionResource,
)
@requires(Permission.TRANSACT, Permission.VIEW)
async def confirm_transaction(
    transaction_id: AnyTransactionId, call: PlatformCall, body: ConfirmRequest | None = None
) -> Response:
    """Confirm that the receipt of a transfer was delivered to the customer, at the given time.

    A repetition replaces the time. Card transactions and deposits have no receipt (400).
    """
    confirmed_at = None if body is None else body.receipt_delivery_confirmed_at
    transfer = await _transfer(call, transaction_id)
    if transfer is None:
        shown = await transactions.one(call, transaction_id)
        message = "Only transfers have a receipt: a card transaction and a deposit have none."
        raise ApiError(Code.INVALID_INPUT, message, details={"type": shown.type})
    confirmed = replace(transfer, receipt_confirmed_at=confirmed_at or call.now())
    async with call.writing() as connection:
        await connection.execute(transfers.confirm_receipt(confirmed))
    return resource_response(await transactions.one(call, transaction_id))


# --- decisions ---------------------------------------------------------------------------------


async def _decide(
    call: PlatformContext,
    transaction_id: TypedId,
    decision: Decision,
    given: Mapping[str, Any],
) -> Response:
    transfer = await _transfer(call, transaction_id)
    if transfer is None:
        raise transactions.not_pending((await transactions.one(call, transaction_id)).status)
    if transfer.needs_approval:
        return await _decide_incoming(call, transfer, decision, given)
    if not transfer.awaits_approval:
        raise transactions.not_pending(transfer.status)
    try:
        async with call.writing() as connection:
            written = await agent_actions.resolve(
                connection,
                platform_id=call.platform_id,
                transaction_id=transfer.id,
                decision=decision,
                pricing=call.services.pricing,
                reply_to=call.client.reply_list,
                inbox_key=call.client.inbox_key,
                at=call.now(),
            )
    except agent_actions.NotPendingError as error:
        raise transactions.not_pending(error.status) from None
    if written is None:
        raise transactions.not_pending(transfer.status)
    return await transactions.after(call, written.action.transfer, written.message)


async def _decide_incoming(
    call: PlatformContext, transfer: Transfer, decision: Decision, given: Mapping[str, Any]
) -> Response:
    """Approve or reject a payment that arrives; of several decisions the first one counts."""
    if transfer.status != transfers.PENDING:
        raise transactions.not_pending(transfer.status)
    required = transfer.requested_fields or ()
    if decision.approve and (missing := approvals.not_given(required, given)):
        raise invalid(
            [
                FieldError(field=f"receiverCustomerInfo.{name}", message="is required")
                for name in missing
            ],
            Code.MISSING_MANDATORY_USER_INFO,
        )
    async with call.writing() as connection:
        message = await requests.decide_incoming(
            connection,
            transfer,
            decision=messages.Decision.APPROVE if decision.approve else messages.Decision.REJECT,
            reason=decision.reason,
            inbox_key=call.client.inbox_key,
            reply_to=call.client.reply_list,
            at=call.now(),
        )
    outcome = await transactions.carry_out(call, message)
    if call.attempt is not None:
        under_way = replace(transfer, status=transfers.PROCESSING)
        return resource_response(payment_resources.resource(under_way))
    shown = await transactions.one(call, TypedId("Transaction", transfer.id))
    if outcome is not None and outcome.outcome != OutcomeType.APPLIED:
        raise transactions.not_pending(shown.status)
    return resource_response(shown)


async def _transfer(call: RequestContext, transaction_id: TypedId) -> Transfer | None:
    """Return the platform's transfer, or None: it is a card transaction, a deposit or unknown."""
    if transaction_id.resource != "Transaction":
        return None
    async with call.reading() as connection:
        return await transaction_queries.transfer(
            connection, platform_id=call.platform_id, transfer_id=transaction_id.key
        )


def _not_cancellable(status: str) -> ApiError:
    message = (
        f"The transaction is {status}; it can be cancelled only until it is handed to its rail."
    )
    return ApiError(Code.TRANSACTION_NOT_CANCELLABLE, message, details={"status": status})
