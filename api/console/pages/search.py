"""The search box: one field for every id and name; a single hit is opened at once."""

from typing import Annotated, Final

from fastapi import Query, Request, Response

from cardledger.api.console import ROOT, rendering
from cardledger.api.console.context import Viewer
from cardledger.api.console.routing import console_router, redirect
from cardledger.ledger.queries import search

_PATHS: Final = {
    "CardTransaction": f"{ROOT}/card-transactions",
    "Card": f"{ROOT}/cards",
    "Customer": f"{ROOT}/customers",
    "InternalAccount": f"{ROOT}/accounts",
    "Transaction": f"{ROOT}/transactions",
    "WebhookDelivery": f"{ROOT}/webhooks/deliveries",
    "WebhookEndpoint": f"{ROOT}/webhooks/endpoints",
    "Rejection": f"{ROOT}/rejections",
}

router = console_router()


@router.get(f"{ROOT}/search")
async def find(
    request: Request, call: Viewer, q: Annotated[str, Query(max_length=300)] = ""
) -> Response:
    """Open what `q` names, or list what it may mean."""
    async with call.snapshot() as connection:
        found = await search.find(connection, platform_id=call.platform_id, query=q)
    hits = [(hit, f"{_PATHS[hit.resource]}/{hit.name}") for hit in found.hits]
    if len(hits) == 1:
        return redirect(hits[0][1])
    return rendering.page(request, "search.html", call=call, query=q, hits=hits, hint=found.hint)
