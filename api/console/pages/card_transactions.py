"""Card transactions: the list, and one with the picture of where every cent went."""

from asyncio import to_thread
from typing import Annotated, Final, get_args

from fastapi import Query, Request, Response

from cardledger.api.console import navigation
from cardledger.api.console.access.context import ConsoleContext, Viewer
from cardledger.api.console.histories import folded
from cardledger.api.console.html import documents, picture, rendering
from cardledger.api.console.lists.filtered_list import FilteredList
from cardledger.api.console.lists.filters import Amount, Filters, LastMoment, Moment, NamedAmount
from cardledger.api.console.lists.list_page import list_page
from cardledger.api.console.routing import console_router
from cardledger.api.http.errors import not_found
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.card_transactions import CardTransactionFilters
from cardledger.ledger.queries.console import purchase_history, purchase_messages
from cardledger.ledger.queries.console.purchase_messages import PurchaseMessages, UnparsedMessages
from cardledger.ledger.webhooks import deliveries
from cardledger.schema.wire.cards.card_transactions import CardTransactionStatus
from cardledger.schema.wire.common import (
    CardId,
    CardTransactionId,
    CustomerId,
    InternalAccountId,
    public_id,
)
from cardledger.schema.wire.errors import Code

_PART: Final = navigation.CARD_TRANSACTIONS
_LIST: Final = FilteredList(
    _PART.path,
    "card_transactions.html",
    part=_PART,
    statuses=get_args(CardTransactionStatus),
)
_DELIVERIES: Final = 10
_ATTEMPTS: Final = 10  # Of each delivery; its page has the others.
_SEARCHED: Final = 20_000  # Card transactions of the platform that a page looks at.
_MAX_EVENTS: Final = 2**31 - 1  # `sequence` is an integer of PostgreSQL.

router = console_router()


class CardTransactionsQuery(Filters):
    """The filters of the list; all must match."""

    status: CardTransactionStatus | None = None
    card_id: CardId | None = None
    customer_id: CustomerId | None = None
    account_id: InternalAccountId | None = None
    since: Moment | None = None
    until: LastMoment | None = None
    min_amount: Amount | None = None


@router.get(_LIST.path)
@_LIST.view
async def list_card_transactions(
    request: Request, query: Annotated[CardTransactionsQuery, Query()], call: Viewer
) -> Response:
    """List card transactions by creation, the newest first."""
    least = query.min_amount
    filters = CardTransactionFilters(
        status=query.status,
        card_id=query.card_id,
        customer_id=query.customer_id,
        account_id=query.account_id,
        created_from=query.since,
        created_to=query.until,
        currency=None if least is None else least.currency,
        min_amount=None if least is None else least.minor_units,
    )
    return await list_page(
        request,
        call,
        query,
        lambda connection, wanted: card_transactions.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=wanted,
            count_limit=0,  # A total would cost more than the page.
            distance=_SEARCHED,
        ),
        of=_LIST,
        api=rendering.with_filters(
            "/transactions?type=CARD&sortOrder=desc",
            request.query_params,
            {"startDate": query.since, "endDate": query.until},
            status="status",
            cardId="cardId",
            customerId="customerId",
            accountIdentifier="accountId",
        ),
        selected=None if least is None else _of_amount(least),
    )


def _of_amount(least: NamedAmount) -> str:
    """Return the condition on the amount, which the list of the API has no filter for.

    What was declined is the authorized amount of the resource.
    """
    amounts = "[.authorizedAmount, .settledAmount, .refundedAmount | .amount // 0]"
    return (
        f'.authorizedAmount.currency.code == "{least.currency}"'
        f" and ({amounts} | max) >= {least.minor_units}"
    )


@router.get(f"{_PART.path}/{{card_transaction_id}}")
async def show_card_transaction(
    request: Request,
    card_transaction_id: CardTransactionId,
    call: Viewer,
    as_of: Annotated[int | None, Query(alias="asOf", ge=1, le=_MAX_EVENTS)] = None,
    first: Annotated[int | None, Query(alias="from", ge=1, le=_MAX_EVENTS)] = None,
) -> Response:
    """Show a card transaction as of one of its events."""
    return await _shown(request, call, card_transaction_id, as_of, first)


async def _shown(
    request: Request,
    call: ConsoleContext,
    card_transaction_id: CardTransactionId,
    as_of: int | None,
    first: int | None,
) -> Response:
    async with call.snapshot() as connection:
        events = await purchase_history.read(
            connection,
            platform_id=call.platform_id,
            card_transaction_id=card_transaction_id,
            as_of=as_of,
            first=first,
        )
        if events is None:
            raise not_found(Code.TRANSACTION_NOT_FOUND, "card transaction")
        unparsed = await purchase_messages.read(
            connection,
            platform_id=call.platform_id,
            resource=events.resource,
            events=events.every,
        )
        webhooks = await deliveries.newest_about(
            connection,
            platform_id=call.platform_id,
            subject_id=card_transaction_id,
            limit=_DELIVERIES,
            attempts=_ATTEMPTS,
        )
    history = await folded(call, events)
    messages = await _parsed(unparsed)
    name = public_id("CardTransaction", card_transaction_id)
    return await rendering.page(
        request,
        "card_transaction.html",
        call=call,
        part=_PART,
        history=history,
        purchase=history.resource,
        name=name,
        picture=picture.draw(history),
        messages=messages,
        rejections_read=purchase_messages.REJECTIONS_READ,
        body_kib=purchase_messages.BODY_BYTES // 1024,
        bodies_kib=purchase_messages.BODIES_BYTES // 1024,
        deliveries=webhooks.items,
        has_more_deliveries=webhooks.has_more,
        attempts=webhooks.attempts,
        api=documents.events_call(
            request,
            call,
            history,
            {
                **documents.messages(messages),
                "webhookDeliveries": (
                    documents.delivery(each, webhooks.attempts[each.id]) for each in webhooks.items
                ),
                "hasMoreWebhookDeliveries": webhooks.has_more,
            },
        ),
    )


async def _parsed(unparsed: UnparsedMessages) -> PurchaseMessages:
    parse = purchase_messages.parse
    return await to_thread(parse, unparsed) if unparsed.has_bodies else parse(unparsed)
