"""The routes of the console, put together."""

from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.routing import BaseRoute

from cardledger.api.console import ROOT, navigation
from cardledger.api.console.access.context import Viewer
from cardledger.api.console.html import assets
from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
from cardledger.api.console.pages import (
    accounts,
    card_transactions,
    cards,
    customers,
    exceptions,
    journal,
    login,
    overview,
    search,
    simulator,
    simulator_funding,
    simulator_payments,
    simulator_stories,
    system,
    webhook_deliveries,
    webhooks,
)
from cardledger.api.console.routing import console_router, failure, redirect
from cardledger.api.http.errors import unknown_path

PAGES: Final[tuple[APIRouter, ...]] = (
    overview.router,
    card_transactions.router,
    search.router,
    exceptions.router,
    customers.router,
    accounts.router,
    cards.router,
    journal.router,
    webhooks.router,
    webhook_deliveries.router,
    system.router,
)
"""The routers of all pages; a new page is added here (docs/console.md)."""

SANDBOX_PAGES: Final[tuple[APIRouter, ...]] = (
    exceptions.sandbox_router,
    simulator_funding.router,  # Before the forms of operations, one of which `fund` would be.
    simulator_payments.router,
    simulator.router,
    simulator_stories.router,
)
"""The routers of pages that exist in a sandbox only."""

_NOT_FOUND: Final = 404

_others = console_router()


@_others.get(f"{ROOT}/{{path:path}}")
async def unknown_page(request: Request, _call: Viewer, path: str) -> Response:
    """Answer for every other path below the console: with a page, to those who have logged in."""
    if not path:
        return redirect(ROOT)
    return await failure(request, _NOT_FOUND, "")


_absent = console_router()


@_absent.post(f"{navigation.SIMULATOR.path}{{path:path}}")
async def absent_form(request: Request, _call: Viewer) -> Response:
    """Answer for forms of pages that exist in a sandbox only."""
    return await failure(request, _NOT_FOUND, "")


_entrance = APIRouter(include_in_schema=False)


@_entrance.get("/")
async def entrance(request: Request) -> Response:
    """Lead browsers to the console; programs get the answer of an unknown path."""
    if "text/html" in request.headers.get("accept", ""):
        return redirect(ROOT)
    raise unknown_path()


def routes(config: ConsoleConfig, *, is_sandbox: bool) -> Sequence[BaseRoute]:
    """Return the routes of the console; none when it is off."""
    if config.mode is ConsoleMode.OFF:
        return ()
    sandbox = SANDBOX_PAGES if is_sandbox else (_absent,)
    routers = (_entrance, assets.router, login.router, *PAGES, *sandbox, _others)
    return [route for router in routers for route in router.routes]
