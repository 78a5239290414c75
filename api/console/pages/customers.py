"""Customers: the list, and one with its accounts and cards."""

from typing import Annotated, Final, Literal, get_args

from fastapi import Query, Request, Response

from cardledger.api.console import navigation
from cardledger.api.console.access.context import Viewer
from cardledger.api.console.html import documents, rendering
from cardledger.api.console.lists.filtered_list import FilteredList
from cardledger.api.console.lists.filters import Filters, LastMoment, Moment
from cardledger.api.console.lists.list_page import list_page
from cardledger.api.console.routing import console_router
from cardledger.api.http.errors import not_found
from cardledger.ledger.cards import registry as cards
from cardledger.ledger.cards.registry import CardFilters
from cardledger.ledger.customers import registry as customers
from cardledger.ledger.customers.registry import CustomerFilters
from cardledger.ledger.projections import accounts
from cardledger.ledger.projections.accounts import AccountFilters
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.card_transactions import CardTransactionFilters
from cardledger.ledger.storage import paging
from cardledger.schema.wire.common import CustomerId, Name, public_id
from cardledger.schema.wire.errors import Code

_CustomerType = Literal["INDIVIDUAL", "BUSINESS"]
_PART: Final = navigation.ACCOUNTS
_PATH: Final = navigation.CUSTOMERS.path
_LIST: Final = FilteredList(
    _PATH, "customers.html", part=_PART, lists=navigation.HOLDERS, types=get_args(_CustomerType)
)
_CARDS: Final = 20
_LATEST: Final = 10

router = console_router()


class CustomersQuery(Filters):
    """The filters of the list; all must match."""

    platform_customer_id: Name | None = None
    customer_type: _CustomerType | None = None
    since: Moment | None = None
    until: LastMoment | None = None


@router.get(_LIST.path)
@_LIST.view
async def list_customers(
    request: Request, query: Annotated[CustomersQuery, Query()], call: Viewer
) -> Response:
    """List customers by creation, the newest first, deleted ones included."""
    filters = CustomerFilters(
        platform_customer_id=query.platform_customer_id,
        customer_type=query.customer_type,
        created_from=query.since,
        created_to=query.until,
        with_deleted=True,
    )
    return await list_page(
        request,
        call,
        query,
        lambda connection, wanted: customers.page(
            connection,
            platform_id=call.platform_id,
            filters=filters,
            wanted=wanted,
            count_limit=0,
        ),
        of=_LIST,
        api=rendering.with_filters(
            "/customers?isIncludingDeleted=true",
            request.query_params,
            {"createdAfter": query.since, "createdBefore": query.until},
            platformCustomerId="platformCustomerId",
            customerType="customerType",
        ),
    )


@router.get(f"{_PATH}/{{customer_id}}")
async def show_customer(request: Request, customer_id: CustomerId, call: Viewer) -> Response:
    """Show a customer with its accounts, and its newest cards and card transactions."""
    newest = paging.Wanted(limit=_CARDS, newest_first=True)
    async with call.snapshot() as connection:
        customer = await customers.get(
            connection, platform_id=call.platform_id, customer_id=customer_id
        )
        if customer is None:
            raise not_found(Code.USER_NOT_FOUND, "customer")
        owned = await accounts.page(
            connection,
            platform_id=call.platform_id,
            filters=AccountFilters(customer_id=customer_id),
            wanted=paging.Wanted(limit=accounts.ACCOUNT_LIMIT),
            count_limit=0,
        )
        held = await cards.page(
            connection,
            platform_id=call.platform_id,
            filters=CardFilters(cardholder_id=customer_id),
            wanted=newest,
            count_limit=0,
        )
        latest = await card_transactions.page(
            connection,
            platform_id=call.platform_id,
            filters=CardTransactionFilters(customer_id=customer_id),
            wanted=paging.Wanted(limit=_LATEST, newest_first=True),
            count_limit=0,
        )
    name = public_id("Customer", customer_id)
    return await rendering.page(
        request,
        "customer.html",
        call=call,
        part=_PART,
        customer=customer,
        name=name,
        accounts=owned.items,
        cards=held.items,
        has_more_cards=held.last is not None,
        latest=latest.items,
        api=rendering.api_call(
            request,
            call,
            f"/customers/{name}",
            {
                **customer.wire(),
                "internalAccounts": owned.items,
                "cards": held.items,
                "hasMoreCards": held.last is not None,
                "cardTransactions": latest.items,
            },
            note=documents.MORE,
        ),
    )
