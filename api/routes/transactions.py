"""Transactions: card transactions, transfers and deposits in one list."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Final

from fastapi import Query, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.errors import ApiError, not_found
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall, RequestContext
from cardledger.api.http.responses import Listing, resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.ledger.messaging.inbox import Message
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.projections.transfers import Transfer
from cardledger.ledger.queries import card_transactions, event_pages, transactions
from cardledger.ledger.quotes import promises as quote_promises
from cardledger.ledger.quotes import records as quotes
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transaction_events import EventResource, EventsQuery
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.cards.transactions import (
    OutgoingTransaction,
    PaymentsQuery,
    TransactionResource,
    TransactionsQuery,
)
from cardledger.schema.wire.common import (
    AnyTransactionId,
    CardTransactionId,
    Page,
    TypedId,
    public_id,
)
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.outcomes import Outcome
from cardledger.workers.client import ReplyTimeoutError
from cardledger.workers.signals import doorbell

_TAG = "Transactions"

_EXPLAINED_AT_ONCE: Final = 20  # Events that take less time than a thread would to begin.

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
        customer_id=_key(query.customer_id),
        platform_customer_id=query.platform_customer_id,
        card_id=query.card_id,
    )
    return await list_matching(call, "transactions", query, filters)


@router.get("/transactions/{transaction_id}", response_model=TransactionResource)
@requires(Permission.VIEW)
async def get_transaction(transaction_id: AnyTransactionId, call: PlatformCall) -> Response:
    """Return a transaction."""
    return await get_one(call, transaction_id)


@router.get("/transactions/{transaction_id}/events", response_model=Page[EventResource])
@requires(Permission.VIEW)
async def list_events(
    transaction_id: CardTransactionId, query: Annotated[EventsQuery, Query()], call: PlatformCall
) -> Response:
    """List the events of a card transaction in order, each with its entries and an explanation."""
    listing = Listing(call, f"events of {transaction_id}", query)
    after = listing.place(event_pages.PLACE_BYTES)
    async with call.reading() as connection:
        page = await event_pages.read(
            connection,
            platform_id=call.platform_id,
            card_transaction_id=transaction_id,
            after=after,
            limit=query.limit,
        )
    if page is None:
        raise no_transaction()
    if len(page.stored) <= _EXPLAINED_AT_ONCE:
        return _explained(listing, page)
    return await asyncio.to_thread(_explained, listing, page)


def _explained(listing: Listing, page: event_pages.UnexplainedPage) -> Response:
    return listing.response(event_pages.explain(page))


# --- for platforms and for agents ----------------------------------------------------------------


def filters_of(query: PaymentsQuery) -> transactions.TransactionFilters:
    """Return the filters of `query` that all lists of transactions have in common."""
    return transactions.TransactionFilters(
        type=query.type,
        account_id=_key(query.account_identifier),
        sender_id=_key(query.sender_account_identifier),
        receiver_id=_key(query.receiver_account_identifier),
        status=query.status,
        reference=query.reference,
        created_from=query.start_date,
        created_to=query.end_date,
    )


def _key(named: TypedId | None) -> Id | None:
    return None if named is None else named.key


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
    return resource_response(await one(call, transaction_id, visible))


def no_transaction() -> ApiError:
    """Return the error for a transaction id that the caller does not have."""
    return not_found(Code.TRANSACTION_NOT_FOUND, "transaction")


def not_pending(status: str) -> ApiError:
    """Return the error for a decision on a transaction that is not pending."""
    message = f"The transaction is {status}; only one pending platform approval can be decided."
    code = Code.TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL
    return ApiError(code, message, details={"status": status})


async def carry_out(call: RequestContext, message: Message | None) -> Outcome | None:
    """Have the engine process `message`, and wait for its outcome if it is committed.

    The rows of a request with a key are committed later, together with its response. None: there is
    no outcome yet, or there was nothing to process.
    """
    await call.notify(doorbell.WEBHOOKS)
    if message is None:
        return None
    if call.attempt is not None:
        await call.notify(doorbell.drain(message.lane, message.shard))
        return None
    with suppress(ReplyTimeoutError):  # What was written says that it is under way.
        return await call.client.outcome_of(message)
    return None


async def after(
    call: RequestContext, transfer: Transfer, message: Message | None, *, status: int = 200
) -> Response:
    """Return the response with `transfer` once `message` was processed; with a key, as written."""
    await carry_out(call, message)
    return resource_response(await one(call, TypedId("Transaction", transfer.id)), status)


def _is_visible(transaction: transactions.Resource, visible: Visibility) -> bool:
    if visible.customer_id is None:
        return True
    if isinstance(transaction, CardTransactionResource):
        return bool(transaction.customer_id == visible.customer_id)
    return bool(transaction.customer_id == public_id("Customer", visible.customer_id))


async def _promised(
    call: RequestContext, connection: AsyncConnection, key: Id, visible: Visibility
) -> OutgoingTransaction | None:
    """Return the transaction that a quote promises and that is not executed, if there is one."""
    quote = await quotes.of_transaction(
        connection, platform_id=call.platform_id, transaction_id=key
    )
    if quote is None or quote.payment_status is not None:
        return None
    if visible.account_ids is not None and quote.quote.source_account_id not in visible.account_ids:
        return None
    return quote_promises.promised(quote, at=call.now())


async def one(
    call: RequestContext, transaction_id: TypedId, visible: Visibility = ALL
) -> transactions.Resource:
    """Return a transaction that the caller sees.

    Raises: ApiError TRANSACTION_NOT_FOUND.
    """
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
            ) or await _promised(call, connection, transaction_id.key, visible)
    if transaction is None or not _is_visible(transaction, visible):
        raise no_transaction()
    return transaction
