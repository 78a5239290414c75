"""Overview: whether the ledger keeps up, what is owed, what fails, and the latest purchases."""

from datetime import datetime
from typing import Final

from fastapi import Request, Response

from cardledger.api.console import ROOT, navigation
from cardledger.api.console.access.context import ConsoleContext, Viewer
from cardledger.api.console.html import rendering
from cardledger.api.console.routing import console_router
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.card_transactions import CardTransactionFilters
from cardledger.ledger.queries.console import platform_figures
from cardledger.ledger.storage import paging

_LATEST: Final = 8

router = console_router()


@router.get(ROOT)
async def overview(request: Request, call: Viewer) -> Response:
    """Show the figures of now, and the latest card transactions."""
    return await _shown(request, call, "overview.html")


@router.get(f"{ROOT}/live")
async def live(request: Request, call: Viewer) -> Response:
    """Return the part of the overview that is refreshed while it is looked at."""
    return await _shown(request, call, "live.html")


async def _shown(request: Request, call: ConsoleContext, template: str) -> Response:
    # Before the snapshot: it waits for an observation over a connection of its own.
    readiness = await call.services.readiness.answer()
    async with call.snapshot() as connection:
        now = call.now()
        figures = await platform_figures.read(connection, platform_id=call.platform_id, now=now)
        rates = await call.console.rates.look(connection, call.platform_id, now)
        page = await card_transactions.page(
            connection,
            platform_id=call.platform_id,
            filters=CardTransactionFilters(),
            wanted=paging.Wanted(limit=_LATEST, newest_first=True),
            count_limit=0,
        )
    checks = readiness.state["failedChecks"]
    return await rendering.page(
        request,
        template,
        call=call,
        part=navigation.OVERVIEW,
        figures=figures,
        rates=rates,
        ages=platform_figures.AGES,
        failed_checks=[
            (name, check, datetime.fromisoformat(check["since"])) for name, check in checks.items()
        ],
        latest=page.items,
    )
