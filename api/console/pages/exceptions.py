"""Exceptions: what is due, the oldest first, and in a sandbox the deposit that pays it."""

import re
from datetime import UTC
from typing import Annotated, Final

from fastapi import Query, Request, Response

from cardledger.api.console import navigation
from cardledger.api.console.access import forms
from cardledger.api.console.access.context import ConsoleContext, Viewer
from cardledger.api.console.access.forms import Transacting
from cardledger.api.console.access.refusals import form_on
from cardledger.api.console.html import documents, rendering
from cardledger.api.console.lists.filtered_list import FilteredList
from cardledger.api.console.lists.filters import Filters
from cardledger.api.console.lists.list_page import list_call
from cardledger.api.console.lists.placed_listing import PlacedListing
from cardledger.api.console.routing import console_router, redirect
from cardledger.api.http.authentication import require
from cardledger.api.http.errors import not_found
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.console import open_exceptions
from cardledger.ledger.queries.console.open_exceptions import ExceptionFilters, OpenException
from cardledger.schema.wire.common import (
    CardTransactionId,
    Currency,
    CustomerId,
    InternalAccountId,
    money,
    public_id,
)
from cardledger.schema.wire.customers.accounts import MAX_FUND
from cardledger.schema.wire.errors import Code

_PART: Final = navigation.EXCEPTIONS
_LIST: Final = FilteredList(_PART.path, "exceptions.html", part=_PART)
_FUND: Final = f"{_PART.path}/{{card_transaction_id}}/fund"
_OTHER_ORDER: Final = (
    "The API lists card transactions by their creation, this page by the event since which they are"
    " due; that, `dueAmount` and what would pay them are of this page."
)

_FUND_NOTE: Final = (
    "The API returns the card transaction; since when it is due, its position in the queue of the"
    " account, `dueAmount`, `availableBalance` and `missingAmount` are of this page."
)
_KEY: Final = re.compile(
    r"console-fund-(?P<purchase>[0-9a-f-]{36})-[0-9T]{21}-(?P<missing>[0-9]{1,40})-[0-9]{1,19}",
    re.ASCII,
)

router = console_router()
sandbox_router = console_router()


class ExceptionsQuery(Filters):
    """The filters of the list; all must match."""

    account_id: InternalAccountId | None = None
    customer_id: CustomerId | None = None
    currency: Currency | None = None


@router.get(_LIST.path)
@_LIST.view
async def list_exceptions(
    request: Request, query: Annotated[ExceptionsQuery, Query()], call: Viewer
) -> Response:
    """List what is due, the oldest first."""
    listing = PlacedListing(call, "console exceptions", query)
    async with call.snapshot() as connection:
        page = await open_exceptions.page(
            connection,
            platform_id=call.platform_id,
            filters=ExceptionFilters(
                account_id=query.account_id,
                customer_id=query.customer_id,
                currency=query.currency,
            ),
            after=listing.after(),
            limit=query.limit,
        )
    return await _LIST.page(
        request,
        call,
        items=page.items,
        queue_limit=open_exceptions.QUEUE_LIMIT,
        next_cursor=listing.next_cursor(page.last),
        api=list_call(
            request,
            call,
            query,
            rendering.with_filters(
                "/transactions?type=CARD&status=EXCEPTION&sortOrder=asc",
                request.query_params,
                accountIdentifier="accountId",
                customerId="customerId",
            ),
            [_document(item) for item in page.items],
            selected=None if query.currency is None else _of_currency(query.currency),
            note=_OTHER_ORDER,
        ),
    )


def _document(item: OpenException) -> documents.Document:
    """Return an open exception in JSON: its card transaction, and what the page says of it."""
    missing = item.missing
    return {
        **item.resource.wire(),
        "dueSince": documents.moment(item.since),
        "dueAmount": money(item.due, item.currency).wire(),
        "event": item.event,
        "source": item.source,
        "reference": item.reference,
        "queuePosition": item.position,
        "availableBalance": money(item.available, item.currency).wire(),
        "missingAmount": None if missing is None else missing.wire(),
        "accountStatus": item.account_status,
    }


def _of_currency(currency: str) -> str:
    """Return the condition on the currency, which the list of the API has no filter for."""
    return f'.owedAmount.currency.code == "{currency}"'


@sandbox_router.get(_FUND)
async def confirm_fund(
    request: Request, card_transaction_id: CardTransactionId, call: Viewer
) -> Response:
    """Show what would be deposited, and to which account; lead to what is paid by now."""
    require(call.token, Permission.TRANSACT)
    owing = await _open_exception(call, card_transaction_id)
    name = public_id("CardTransaction", card_transaction_id)
    if owing is None:
        return redirect(f"{navigation.CARD_TRANSACTIONS.path}/{name}")
    missing = owing.missing
    amount = None if missing is None else _deposit_of(missing.amount)
    return await rendering.page(
        request,
        "fund_exception.html",
        call=call,
        part=_PART,
        owing=owing,
        amount=None if amount is None else money(amount, owing.currency),
        name=name,
        account=public_id("InternalAccount", owing.resource.account_id),
        key=None if missing is None else _key_of(owing, missing.amount),
        api=rendering.api_call(
            request,
            call,
            f"/transactions/{name}",
            _document(owing),
            note=_FUND_NOTE,
        ),
    )


@sandbox_router.post(_FUND)
@form_on(_FUND)
async def fund(card_transaction_id: CardTransactionId, action: Transacting) -> Response:
    """Deposit the confirmed amount on the confirmed account, and lead to what it has paid."""
    account, amount = action.fields.get("account_id", ""), action.fields.get("amount", "")
    # The form has no field to change the amount: another one has another key, of a page of its own.
    debt = _KEY.fullmatch(action.fields[forms.KEY])
    if debt is None or debt["purchase"] != str(card_transaction_id):
        raise forms.outdated()
    if amount != str(_deposit_of(int(debt["missing"]))):
        raise forms.outdated()
    owing = await _account_of(action.call, card_transaction_id)
    if account != owing:
        raise forms.outdated()
    answer = await action.run(
        "POST", f"/sandbox/internal-accounts/{account}/fund", {"amount": int(amount)}
    )
    if not answer.is_success:
        raise answer.error()
    name = public_id("CardTransaction", card_transaction_id)
    return redirect(f"{navigation.CARD_TRANSACTIONS.path}/{name}")


def _deposit_of(missing: int) -> int:
    """Return the amount that is deposited when `missing` minor units are missing.

    Where nothing is missing, the debt waits for the next credit to the account: any amount is one.
    """
    return max(1, min(missing, MAX_FUND))


def _key_of(owing: OpenException, missing: int) -> str:
    """Return the Idempotency-Key of the deposit for a debt: the same on all forms that are of it.

    A debt is one of a purchase since an event, for which so much is missing after so many entries
    on the account. A deposit that did not pay it, as the largest possible one or where more was
    owed by then, is such an entry: the next deposit is another one, even where as much is missing.
    """
    since = f"{owing.since.astimezone(UTC):%Y%m%dT%H%M%S%f}"
    return f"console-fund-{owing.resource.id}-{since}-{missing}-{owing.account_version}"


async def _open_exception(
    call: ConsoleContext, card_transaction_id: CardTransactionId
) -> OpenException | None:
    """Return what is due for a card transaction; None: nothing is, as after its payment.

    Raises: ApiError TRANSACTION_NOT_FOUND when the platform has no such card transaction.
    """
    async with call.snapshot() as connection:
        page = await open_exceptions.page(
            connection,
            platform_id=call.platform_id,
            filters=ExceptionFilters(id=card_transaction_id),
            limit=1,
        )
        if page.items:
            return page.items[0]
        found = await card_transactions.get(
            connection, platform_id=call.platform_id, card_transaction_id=card_transaction_id
        )
    if found is None:
        raise not_found(Code.TRANSACTION_NOT_FOUND, "card transaction")
    return None


async def _account_of(call: ConsoleContext, card_transaction_id: CardTransactionId) -> str:
    """Return the account of a card transaction, which may have been paid meanwhile."""
    async with call.snapshot() as connection:
        found = await card_transactions.get(
            connection, platform_id=call.platform_id, card_transaction_id=card_transaction_id
        )
    if found is None:
        raise not_found(Code.TRANSACTION_NOT_FOUND, "card transaction")
    return public_id("InternalAccount", found.account_id)
