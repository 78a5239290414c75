"""Transactions: card transactions, transfers and deposits in one list."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Final

from fastapi import Query, Response

from cardledger.api.http import routing
from cardledger.api.http.errors import ApiError, not_found
from cardledger.api.http.operations import answers
from cardledger.api.http.request_context import AnyCall, Call, PlatformCall
from cardledger.api.http.responses import Listing, answer
from cardledger.ledger.agents import actions as agent_actions
from cardledger.ledger.agents.actions import Decision, RecordedAction
from cardledger.ledger.platforms.api_tokens import Permission
from cardledger.ledger.projections import transfers
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

DECIDED: Final = answers(Code.TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL)
"""What every decision refuses: to be the second one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Whose transactions a caller sees, and of which accounts; None is all of its platform's."""

    customer_id: Id | None = None
    account_ids: Collection[Id] | None = None


ALL = Sight()
"""What a platform sees."""

reads = routing.routes(Permission.VIEW, tag=_TAG)
decisions = routing.routes(Permission.TRANSACT, tag=_TAG)


@reads.get("/transactions", response_model=Page[TransactionResource])
async def list_transactions(
    query: Annotated[TransactionsQuery, Query()], call: PlatformCall
) -> Response:
    """List transactions by creation, newest first unless `sortOrder` says otherwise."""
    filters = replace(
        filters_of(query),
        customer_id=query.customer_id,
        platform_customer_id=query.platform_customer_id,
        card_id=query.card_id,
    )
    return await list_matching(call, "transactions", query, filters)


@reads.get("/transactions/{transaction_id}", response_model=TransactionResource)
async def get_transaction(transaction_id: AnyTransactionId, call: PlatformCall) -> Response:
    """Return a transaction."""
    return await get_one(call, transaction_id)


@decisions.post(
    "/transactions/{transaction_id}/approve",
    response_model=TransactionResource,
    responses=DECIDED,
)
async def approve_transaction(
    transaction_id: AnyTransactionId,
    call: PlatformCall,
    body: ApproveRequest | None = None,  # noqa: ARG001 - what it may say is for other types
) -> Response:
    """Let a transaction happen that an agent asked for and that waits for its platform.

    What its agent's policy forbids by now, or its accounts cannot do, ends as `FAILED`; nothing
    moves then. The answer waits for the ledger; with an `Idempotency-Key` it is `PROCESSING`, and
    a webhook tells the rest.
    """
    return await _decide(call, transaction_id, Decision(approve=True))


@decisions.post(
    "/transactions/{transaction_id}/reject",
    response_model=TransactionResource,
    responses=DECIDED,
)
async def reject_transaction(
    transaction_id: AnyTransactionId, call: PlatformCall, body: RejectRequest | None = None
) -> Response:
    """Refuse a transaction that an agent asked for and that waits for its platform."""
    reason = None if body is None else body.reason
    return await _decide(call, transaction_id, Decision(approve=False, reason=reason))


@reads.get("/transactions/{transaction_id}/events", response_model=EventList)
async def list_events(transaction_id: CardTransactionId, call: PlatformCall) -> Response:
    """Explain a card transaction: its events in order, what each moved and changed, and why."""
    async with call.reading() as connection:
        found = await card_transactions.events(
            connection, platform_id=call.platform_id, card_transaction_id=transaction_id
        )
    if found is None:
        raise no_transaction()
    return answer(EventList(data=found))


# --- for platforms and for agents ----------------------------------------------------------------


def filters_of(query: PaymentsQuery) -> transactions.TransactionFilters:
    """Return the filters of `query` that every list of transactions has."""
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
    call: AnyCall, name: str, query: PaymentsQuery, filters: transactions.TransactionFilters
) -> Response:
    """Answer with the page that `query` asks for of the list `name`."""
    listing = Listing(call, name, query)
    wanted = listing.wanted(newest_first=query.sort_order == "desc")
    async with call.reading() as connection:
        page = await transactions.page(
            connection, platform_id=call.platform_id, filters=filters, wanted=wanted
        )
    return listing.answer(page)


async def get_one(call: AnyCall, transaction_id: TypedId, *, within: Sight = ALL) -> Response:
    """Answer with a transaction of the caller's, as far as it sees.

    Raises: ApiError TRANSACTION_NOT_FOUND.
    """
    return answer(await _found(call, transaction_id, within))


def no_transaction() -> ApiError:
    """Return the refusal of a transaction id that the caller does not have."""
    return not_found(Code.TRANSACTION_NOT_FOUND, "transaction")


def not_pending(status: str) -> ApiError:
    """Return the refusal to decide about what nobody waits for."""
    message = f"the transaction is {status}; only one that waits for your approval is decided about"
    code = Code.TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL
    return ApiError(code, message, details={"status": status})


async def carry_out(call: AnyCall, written: RecordedAction) -> None:
    """Have the engine decide what was `written`; wait for that where it is committed by now.

    The rows of a request with a key are not: they are committed with its answer.
    """
    await call.ring(doorbell.WEBHOOKS)
    if written.message is None:
        return
    if call.attempt is not None:
        await call.ring(doorbell.drain(written.message.lane, written.message.shard))
        return
    with suppress(ReplyTimeoutError):  # It is on its way, and says so.
        await call.client.outcome_of(written.message)


async def _decide(call: Call, transaction_id: TypedId, decision: Decision) -> Response:
    if transaction_id.resource != "Transaction":
        raise not_pending((await _found(call, transaction_id)).status)
    try:
        async with call.writing() as connection:
            written = await agent_actions.resolve(
                connection,
                platform_id=call.platform_id,
                transaction_id=transaction_id.key,
                decision=decision,
                reply_to=call.client.reply_list,
                at=call.now(),
            )
    except agent_actions.NotPendingError as error:
        raise not_pending(error.status) from None
    if written is None:
        raise not_pending((await _found(call, transaction_id)).status)
    await carry_out(call, written)
    if call.attempt is not None:
        return answer(transfers.outgoing(written.action.transfer))
    return await get_one(call, transaction_id)


async def _found(
    call: AnyCall, transaction_id: TypedId, within: Sight = ALL
) -> transactions.Resource:
    found: transactions.Resource | None
    async with call.reading() as connection:
        if transaction_id.resource == "CardTransaction":
            found = await card_transactions.get(
                connection,
                platform_id=call.platform_id,
                card_transaction_id=transaction_id.key,
                account_ids=within.account_ids,
            )
        else:
            found = await transactions.payment(
                connection,
                platform_id=call.platform_id,
                transaction_id=transaction_id.key,
                account_ids=within.account_ids,
            )
    if found is None or within.customer_id not in {None, found.customer_id}:
        raise no_transaction()
    return found
