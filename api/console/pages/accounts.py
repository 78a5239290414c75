"""Internal accounts: the list, and one with its statement."""

from typing import Annotated, Final

from fastapi import Query, Request, Response

from cardledger.api.console import navigation
from cardledger.api.console.access.context import ConsoleContext, Viewer
from cardledger.api.console.access.refusals import form_on
from cardledger.api.console.html import documents, rendering
from cardledger.api.console.lists.filtered_list import FilteredList
from cardledger.api.console.lists.filters import PAGE_ROWS, Filters, LastMoment, Moment, Sent
from cardledger.api.console.lists.list_page import list_call
from cardledger.api.console.routing import console_router
from cardledger.api.http.errors import not_found
from cardledger.api.http.responses import Listing
from cardledger.ledger.cards import registry as cards
from cardledger.ledger.cards.registry import CardFilters
from cardledger.ledger.projections import accounts
from cardledger.ledger.projections.accounts import AccountFilters
from cardledger.ledger.queries.console import statements
from cardledger.ledger.queries.console.statements import Line
from cardledger.ledger.storage import paging
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import (
    MAX_AMOUNT,
    Currency,
    CustomerId,
    InternalAccountId,
    amount,
    parse_id,
    public_id,
    rfc3339,
)
from cardledger.schema.wire.errors import Code

_PART: Final = navigation.ACCOUNTS
_LIST: Final = FilteredList(_PART.path, "accounts.html", part=_PART, lists=navigation.HOLDERS)
_ONE: Final = f"{_PART.path}/{{account_id}}"
_CARDS: Final = 10
_OTHER_ORDER: Final = (
    "The API lists the oldest first, this page the newest; those of the platform itself are at"
    " /platform/internal-accounts."
)
_STATEMENT: Final = (
    "The API returns the account; `cards` are of this page, and `statement`, its entries, is of the"
    " command line, by posting day: cardledger report statement --platform {platform}"
    " --account {account} --format json"
)

router = console_router()


class AccountsQuery(Filters):
    """The filters of the list; all must match."""

    customer_id: CustomerId | None = None
    currency: Currency | None = None


class StatementQuery(Filters):
    """The page of a statement: what was recorded between two times, before a position."""

    since: Moment | None = None
    until: LastMoment | None = None
    before: Annotated[int | None, Query(ge=1, le=MAX_AMOUNT)] = None


@router.get(_LIST.path)
@_LIST.view
async def list_accounts(
    request: Request, query: Annotated[AccountsQuery, Query()], call: Viewer
) -> Response:
    """List the accounts of customers by creation, the newest first, and the platform's own."""
    listing = Listing(call, "console accounts", query)
    async with call.snapshot() as connection:
        page = await accounts.page(
            connection,
            platform_id=call.platform_id,
            filters=AccountFilters(customer_id=query.customer_id, currency=query.currency),
            wanted=listing.wanted(newest_first=True),
            count_limit=0,
        )
        own = (
            []
            if query.customer_id or query.cursor
            else await accounts.platform_accounts(
                connection, platform_id=call.platform_id, currency=query.currency
            )
        )
    return await _LIST.page(
        request,
        call,
        items=page.items,
        own=own,
        next_cursor=listing.next_cursor(page),
        api=list_call(
            request,
            call,
            query,
            rendering.with_filters(
                "/customers/internal-accounts",
                request.query_params,
                customerId="customerId",
                currency="currency",
            ),
            page.items,
            others={"platformAccounts": own} if own else None,
            note=_OTHER_ORDER,
        ),
    )


async def _without_statement(request: Request, call: ConsoleContext) -> Response:
    """Show the account of an address whose time was refused."""
    account_id = parse_id("InternalAccount", request.path_params["account_id"])
    return await show_account(request, account_id, StatementQuery(), call)


@router.get(_ONE)
@form_on(_ONE, show=_without_statement)
async def show_account(
    request: Request,
    account_id: InternalAccountId,
    query: Annotated[StatementQuery, Query()],
    call: Viewer,
) -> Response:
    """Show an account: what is available, held and owed, and a page of its statement."""
    async with call.snapshot() as connection:
        account = await accounts.get(
            connection, platform_id=call.platform_id, account_id=account_id
        )
        if account is None:
            raise not_found(Code.REFERENCE_NOT_FOUND, "internal account")
        statement = await statements.page(
            connection,
            account_id=account_id,
            before=query.before,
            since=query.since,
            until=query.until,
            limit=PAGE_ROWS,
        )
        funded = await cards.page(
            connection,
            platform_id=call.platform_id,
            filters=CardFilters(account_id=account_id),
            wanted=paging.Wanted(limit=_CARDS, newest_first=True),
            count_limit=0,
        )
    name = public_id("InternalAccount", account_id)
    currency = account.balance.currency.code
    return await rendering.page(
        request,
        "account.html",
        call=call,
        part=_PART,
        account=account,
        name=name,
        sent=Sent.of(request),
        statement=statement,
        cards=funded.items,
        has_more_cards=funded.last is not None,
        api=rendering.api_call(
            request,
            call,
            f"/internal-accounts/{name}",
            {
                **account.wire(),
                "statement": [_wire(line, currency) for line in statement.lines],
                "cards": funded.items,
                "hasMoreCards": funded.last is not None,
            },
            note=_STATEMENT.format(platform=_uuid(call.platform_id), account=name),
        ),
    )


def _wire(line: Line, currency: str) -> dict[str, object]:
    """Return a line of a statement in JSON; amounts are minor units."""
    return {
        "entry": line.version,
        "recordedAt": rfc3339(line.recorded_at),
        "event": line.event,
        **documents.entry_subject(line.subject),
        "otherAccount": line.other,
        "amount": amount(line.amount, currency),
        "balance": amount(line.balance, currency),
    }


def _uuid(platform_id: Id) -> str:
    return public_id("PlatformConfig", platform_id).partition(":")[2]
