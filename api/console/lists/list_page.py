"""A page of a list in the order of ids, the newest first, with the same from the API."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from fastapi import Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.console.access.context import ConsoleContext
from cardledger.api.console.html import documents, rendering
from cardledger.api.console.lists.filtered_list import FilteredList
from cardledger.api.console.lists.filters import Filters
from cardledger.api.http.responses import Listing
from cardledger.ledger.storage.paging import Page, Wanted
from cardledger.schema.wire.common import Response as Resource

LATER_PAGE: Final = (
    "This is a later page: the command returns the first; send the `nextCursor` of its answer as"
    " `cursor` for the next one."
)
NOT_SEARCHED: Final = (
    "This page ends where its search did: the command goes on until its page is full, which may"
    " take too long."
)
SELECTED: Final = (
    "The API has no such filter: the command selects within one page of its answer, and may return"
    " fewer than this page."
)


Reader = Callable[[AsyncConnection, Wanted], Awaitable[Page[Any]]]
"""Reads the page that is wanted, of resources of the API."""


async def list_page(  # noqa: PLR0913 - what every list has, by name
    request: Request,
    call: ConsoleContext,
    filters: Filters,
    read: Reader,
    *,
    of: FilteredList,
    api: str,
    selected: str | None = None,
) -> Response:
    """Return the page of the list `of` with what `read` returns for `filters`.

    `api` is the path of the same list in the API, `selected` as in `list_call`.
    A cursor is valid for one template and these filters.
    """
    listing = Listing(call, f"console {of.template}", filters)
    async with call.snapshot() as connection:
        page = await read(connection, listing.wanted(newest_first=True))
    items = list(page.items)
    try:
        return await of.page(
            request,
            call,
            items=items,
            next_cursor=listing.next_cursor(page),
            reached=page.reached,
            api=list_call(
                request,
                call,
                filters,
                api,
                items,
                selected=selected,
                note=None if page.reached is None else NOT_SEARCHED,
            ),
        )
    finally:
        # The template leaves cycles that have the list. Its items are freed here: later, with other
        # pages' at once, they would block the event loop.
        items.clear()


def list_call(  # noqa: PLR0913 - each by name
    request: Request,
    call: ConsoleContext,
    filters: Filters,
    path: str,
    data: Sequence[documents.Document | Resource],
    *,
    selected: str | None = None,
    others: Mapping[str, Any] | None = None,
    note: str | None = None,
) -> rendering.ApiCall:
    """Return the request of the API that lists the `data` of a page, at `path` with its filters.

    `others` is what else the page shows. `selected` is a condition of `jq` for what the API has no
    filter of. The note says where the answer cannot be the page, besides what `note` says of this
    list.
    """
    notes = [
        note,
        None if selected is None else SELECTED,
        LATER_PAGE if filters.cursor else None,
    ]
    return rendering.api_call(
        request,
        call,
        rendering.with_filters(path, {"limit": str(filters.limit)}, limit="limit"),
        {**(others or {}), "data": data},
        selected=selected,
        note=" ".join(filter(None, notes)) or None,
    )
