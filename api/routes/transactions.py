"""Transactions: card transactions, transfers and deposits in one list."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http.errors import ApiError, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, PlatformContext, RequestContext
from cardledger.api.http.responses import Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.agents import actions as agent_actions
from cardledger.ledger.agents.actions import Decision, RecordedAction
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.projections import payment_resources
from cardledger.ledger.queries import card_transactions, transactions
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transaction_events import EventList
from cardledger.schema.wire.cards.transactions import (
    ApproveRequest,
    PaymentsQuery,
    RejectRequest,
    TransactionResource,
    TransactionsQuery,
)
from cardledger.schema.wire.common import AnyTransactionId, CardTransactionId, Page, TypedId
from cardledger.schema.wire.errors import Code
from cardledger.workers.client import ReplyTimeoutError
from cardledger.workers.signals import doorbell

_TAG = "Transactions"

DECISION_ERRORS: Final = error_responses(Code.TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL)
"""Errors of every decision: only a pending transaction can be decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """The customer and the accounts whose transactions a caller sees; None: all of the platform."""

    customer_id: Id | None = None
    account_ids: Collection[Id] | None = None


ALL = Visibility()
"""All transactions of the platform."""

router = guarded_router(_TAG)


@router.get("/transactions", response_model=Page[TransactionResource])
@requires(Permission.VIEW)
async def list_transactions(
    query: Annotated[TransactionsQuery, Query()], call: PlatformCall
) -> Response:
    """List transactions by creation, newest first unless `sortOrder` is `asc`."""
    filters = replace(
        filters_of(query),
        customer_id=query.customer_id,
        platform_customer_id=query.platform_customer_id,
        card_id=query.card_id,
    )
    return await list_matching(call, "transactions", query, filters)


@router.get("/transactions/{transaction_id}", response_model=TransactionResource)
@requires(Permission.VIEW)
async def get_transaction(transaction_id: AnyTransactionId, call: PlatformCall) -> Response:
    """Return a transaction."""
    return await get_one(call, transaction_id)


@router.post(
    "/transactions/{transaction_id}/approve",
    response_model=TransactionResource,
    responses=DECISION_ERRORS,
)
@requires(Permission.TRANSACT)
async def approve_transaction(
    transaction_id: AnyTransactionId,
    call: PlatformCall,
    body: ApproveRequest | None = None,  # noqa: ARG001 - its fields are for other types
) -> Response:
    """Approve a transaction that an agent initiated and that is pending the platform's approval.

    It ends as `FAILED`, without moving money, if the agent's policy no longer allows it or its
    accounts cannot execute it. The response waits for the ledger; with an `Idempotency-Key` it is
    `PROCESSING`, and a webhook reports the result.
    """
    return await _decide(call, transaction_id, Decision(approve=True))


@router.post(
    "/transactions/{transaction_id}/reject",
    response_model=TransactionResource,
    responses=DECISION_ERRORS,
)
@requires(Permission.TRANSACT)
async def reject_transaction(
    transaction_id: AnyTransactionId, call: PlatformCall, body: RejectRequest | None = None
) -> Response:
    """Reject a transaction that an agent initiated and that is pending the platform's approval."""
    reason = None if body is None else body.reason
    return await _decide(call, transaction_id, Decision(approve=False, reason=reason))


@router.get("/transactions/{transaction_id}/events", response_model=EventList)
@requires(Permission.VIEW)
async def list_events(transaction_id: CardTransactionId, call: PlatformCall) -> Response:
    """List the events of a card transaction in order, each with its entries and an explanation."""
    async with call.reading() as connection:
        events = await card_transactions.events(
            connection, platform_id=call.platform_id, card_transaction_id=transaction_id
        )
    if events is None:
        raise no_transaction()
    return resource_response(EventList(data=events))


# --- for platforms and for agents ----------------------------------------------------------------


def filters_of(query: PaymentsQuery) -> transactions.TransactionFilters:
    """Return the filters of `query` that all lists of transactions have in common."""
    return transactions.TransactionFilters(
        type=query.type,
        account_id=query.account_identifier,
        sender_id=query.sender_account_identifier,
        receiver_id=query.receiver_account_identifier,
        status=query.status,
        reference=query.reference,
        created_from=query.start_date,
        created_to=query.end_date,
    )


async def list_matching(
    call: RequestContext,
    name: str,
    query: PaymentsQuery,
    filters: transactions.TransactionFilters,
) -> Response:
    """Return the page of the list `name` that `query` selects."""
    listing = Listing(call, name, query)
    wanted = listing.wanted(newest_first=query.sort_order == "desc")
    async with call.reading() as connection:
        page = await transactions.page(
            connection, platform_id=call.platform_id, filters=filters, wanted=wanted
        )
    return listing.response(page)


async def get_one(
    call: RequestContext, transaction_id: TypedId, *, visible: Visibility = ALL
) -> Response:
    """Return the response with a transaction that the caller sees.

    Raises: ApiError TRANSACTION_NOT_FOUND.
    """
    return resource_response(await _transaction(call, transaction_id, visible))


def no_transaction() -> ApiError:
    """Return the error for a transaction id that the caller does not have."""
    return not_found(Code.TRANSACTION_NOT_FOUND, "transaction")


def not_pending(status: str) -> ApiError:
    """Return the error for a decision on a transaction that is not pending."""
    message = f"The transaction is {status}; only one pending platform approval can be decided."
    code = Code.TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL
    return ApiError(code, message, details={"status": status})


async def carry_out(call: RequestContext, written: RecordedAction) -> None:
    """Have the engine process what was `written`, and wait for it if it is committed.

    The rows of a request with a key are committed later, together with its response.
    """
    await call.notify(doorbell.WEBHOOKS)
    if written.message is None:
        return
    if call.attempt is not None:
        await call.notify(doorbell.drain(written.message.lane, written.message.shard))
        return
    with suppress(ReplyTimeoutError):  # Its status is PROCESSING.
        await call.client.outcome_of(written.message)


async def _decide(call: PlatformContext, transaction_id: TypedId, decision: Decision) -> Response:
    if transaction_id.resource != "Transaction":
        raise not_pending((await _transaction(call, transaction_id)).status)
    try:
        async with call.writing() as connection:
            written = await agent_actions.resolve(
                connection,
                platform_id=call.platform_id,
                transaction_id=transaction_id.key,
                decision=decision,
                reply_to=call.client.reply_list,
                inbox_key=call.client.inbox_key,
                at=call.now(),
            )
    except agent_actions.NotPendingError as error:
        raise not_pending(error.status) from None
    if written is None:
        raise not_pending((await _transaction(call, transaction_id)).status)
    await carry_out(call, written)
    if call.attempt is not None:
        return resource_response(payment_resources.resource(written.action.transfer))
    return await get_one(call, transaction_id)


async def _transaction(
    call: RequestContext, transaction_id: TypedId, visible: Visibility = ALL
) -> transactions.Resource:
    transaction: transactions.Resource | None
    async with call.reading() as connection:
        if transaction_id.resource == "CardTransaction":
            transaction = await card_transactions.get(
                connection,
                platform_id=call.platform_id,
                card_transaction_id=transaction_id.key,
                account_ids=visible.account_ids,
            )
        else:
            transaction = await transactions.payment(
                connection,
                platform_id=call.platform_id,
                transaction_id=transaction_id.key,
                account_ids=visible.account_ids,
            )
    if transaction is None or visible.customer_id not in {None, transaction.customer_id}:
        raise no_transaction()
    return transaction
