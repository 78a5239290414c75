"""The search box: one field for every id and name; a single hit is opened at once."""

from typing import Annotated, Final

from fastapi import Query, Request, Response

from cardledger.api.console import ROOT
from cardledger.api.console.access.context import Viewer
from cardledger.api.console.html import rendering
from cardledger.api.console.routing import console_router, redirect
from cardledger.api.http.request_context import public_root
from cardledger.ledger.queries.console import search
from cardledger.ledger.queries.console.search import Hit

_PATHS: Final = {
    "CardTransaction": f"{ROOT}/card-transactions",
    "Card": f"{ROOT}/cards",
    "Customer": f"{ROOT}/customers",
    "InternalAccount": f"{ROOT}/accounts",
    "WebhookDelivery": f"{ROOT}/webhooks/deliveries",
    "WebhookEndpoint": f"{ROOT}/webhooks/endpoints",
}
_IN_THE_API: Final = {"Transaction": "/transactions", "Rejection": "/rejections"}
"""What has no page, by its address in the API."""

router = console_router()


@router.get(f"{ROOT}/search")
async def find(
    request: Request, call: Viewer, q: Annotated[str, Query(max_length=300)] = ""
) -> Response:
    """Open what `q` names, or list what it may mean."""
    async with call.snapshot() as connection:
        found = await search.find(connection, platform_id=call.platform_id, query=q)
    hits = [(hit, _page_of(hit), _address_of(request, hit)) for hit in found.hits]
    if len(hits) == 1 and hits[0][1] is not None:
        return redirect(hits[0][1])
    return rendering.page(request, "search.html", call=call, query=q, hits=hits, hint=found.hint)


def _page_of(hit: Hit) -> str | None:
    path = _PATHS.get(hit.resource)
    return None if path is None else f"{path}/{hit.name}"


def _address_of(request: Request, hit: Hit) -> str | None:
    path = _IN_THE_API.get(hit.resource)
    return None if path is None else f"{public_root(request)}{path}/{hit.name}"
