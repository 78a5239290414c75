"""Transactions: card transactions, the only ones that exist yet."""

from typing import Annotated

from fastapi import Query, Response

from api import routing
from api.answers import Listing, answer
from api.context import Here
from api.errors import not_found
from ledger import card_transactions, paging
from ledger.tokens import Permission
from schema.wire.card_transaction_events import EventList
from schema.wire.card_transactions import CardTransactionResource
from schema.wire.common import CardTransactionId, Page
from schema.wire.errors import Code
from schema.wire.transactions import TransactionsQuery

reads = routing.routes(Permission.VIEW, tag="Transactions")


@reads.get("/transactions", response_model=Page[CardTransactionResource])
async def list_transactions(query: Annotated[TransactionsQuery, Query()], call: Here) -> Response:
    """List transactions by creation, newest first unless `sortOrder` says otherwise."""
    listing = Listing(call, "transactions", query)
    wanted = listing.wanted(newest_first=query.sort_order == "desc")
    sender = query.sender_account_identifier or query.account_identifier
    is_elsewhere = query.account_identifier not in {None, sender}
    if query.type not in {None, "CARD"} or query.receiver_account_identifier or is_elsewhere:
        nothing: paging.Page[CardTransactionResource]
        nothing = paging.Page(items=[], last=None, total_count=0)
        return listing.answer(nothing)
    filters = card_transactions.Filters(
        customer_id=query.customer_id,
        platform_customer_id=query.platform_customer_id,
        card_id=query.card_id,
        account_id=sender,
        status=query.status,
        token=query.reference,
        created_from=query.start_date,
        created_to=query.end_date,
    )
    async with call.reading() as connection:
        page = await card_transactions.page(
            connection, platform_id=call.platform_id, filters=filters, wanted=wanted
        )
    return listing.answer(page)


@reads.get("/transactions/{transaction_id}", response_model=CardTransactionResource)
async def get_transaction(transaction_id: CardTransactionId, call: Here) -> Response:
    """Return a transaction."""
    async with call.reading() as connection:
        found = await card_transactions.get(
            connection, platform_id=call.platform_id, card_transaction_id=transaction_id
        )
    if found is None:
        raise not_found(Code.TRANSACTION_NOT_FOUND, "transaction")
    return answer(found)


@reads.get("/transactions/{transaction_id}/events", response_model=EventList)
async def list_events(transaction_id: CardTransactionId, call: Here) -> Response:
    """Explain a card transaction: its events in order, what each moved and changed, and why."""
    async with call.reading() as connection:
        found = await card_transactions.events(
            connection, platform_id=call.platform_id, card_transaction_id=transaction_id
        )
    if found is None:
        raise not_found(Code.TRANSACTION_NOT_FOUND, "transaction")
    return answer(EventList(data=found))
