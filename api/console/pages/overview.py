"""Overview: the first page."""

from typing import Final

from fastapi import Request, Response

from cardledger.api.console import ROOT, navigation, rendering
from cardledger.api.console.context import Viewer
from cardledger.api.console.routing import console_router
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.storage import paging

_LATEST: Final = 10

router = console_router()


@router.get(ROOT)
async def overview(request: Request, call: Viewer) -> Response:
    """Show the latest card transactions."""
    async with call.snapshot() as connection:
        page = await card_transactions.page(
            connection,
            platform_id=call.platform_id,
            filters=card_transactions.CardTransactionFilters(),
            wanted=paging.Wanted(limit=_LATEST, newest_first=True),
            count_limit=0,
        )
    return rendering.page(
        request, "overview.html", call=call, part=navigation.OVERVIEW, latest=page.items
    )
