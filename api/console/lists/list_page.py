"""A page of a list in the order of ids, the newest first, with the same from the API."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.console import navigation
from cardledger.api.console.access.context import ConsoleContext
from cardledger.api.console.html import rendering
from cardledger.api.console.lists.filters import Filters, Sent
from cardledger.api.http.responses import Listing
from cardledger.ledger.storage.paging import Page, Wanted

Reader = Callable[[AsyncConnection, Wanted], Awaitable[Page[Any]]]
"""Reads the page that is wanted, of resources of the API."""


async def list_page(  # noqa: PLR0913 - what every list has, by name
    request: Request,
    call: ConsoleContext,
    filters: Filters,
    read: Reader,
    *,
    template: str,
    part: navigation.Part,
    api: str,
    selected: str | None = None,
    **values: Any,  # noqa: ANN401 - whatever the template shows
) -> Response:
    """Return the page that `template` makes of what `read` returns for `filters`.

    `api` is the path of the same list in the API, `selected` as in `rendering.api_call`.
    A cursor is valid for one template and these filters.
    """
    listing = Listing(call, f"console {template}", filters)
    async with call.snapshot() as connection:
        page = await read(connection, listing.wanted(newest_first=True))
    return rendering.page(
        request,
        template,
        call=call,
        part=part,
        sent=Sent(request.query_params),
        items=page.items,
        next_cursor=listing.next_cursor(page),
        api=rendering.api_call(
            request,
            call,
            api,
            {"data": [item.wire() for item in page.items]},
            selected=selected,
        ),
        **values,
    )
