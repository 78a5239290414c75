"""System: versions, checks, queues, settings without secrets, the last requests."""

import platform
from typing import Final

from fastapi import Request, Response

from cardledger.api.console import navigation
from cardledger.api.console.access.context import Viewer
from cardledger.api.console.html import rendering
from cardledger.api.console.routing import console_router
from cardledger.api.http.recent_requests import RecentRequests, errors
from cardledger.ledger.queries.console import platform_figures, versions

_PART: Final = navigation.SYSTEM
_SHOWN: Final = 50  # Requests of a page; errors are counted in all that are kept.
_STATES: Final = {
    "ok": "fine",
    "warn": "owes",
    "fail": "bad",
    "?": "hint",
}  # As the style sheet has them.

router = console_router()


@router.get(_PART.path)
async def show_system(request: Request, call: Viewer) -> Response:
    """Show what this process runs on, what is checked, and what was asked of it."""
    # Before the snapshot: these wait for what is read over connections of their own.
    readiness = await call.services.readiness.answer()
    report = await call.console.examination.answer()
    async with call.snapshot() as connection:
        postgresql = await versions.read(connection)
        depths = await platform_figures.depths(connection, platform_id=call.platform_id)
    recent: RecentRequests | None = request.app.state.recent_requests
    requests = [] if recent is None else recent.of(call.platform_id)
    return await rendering.page(
        request,
        "system.html",
        call=call,
        part=_PART,
        state=readiness.state,
        failures=readiness.failures,
        report=report,
        states=_STATES,
        postgresql=postgresql,
        python=platform.python_version(),
        depths=depths,
        settings=request.app.state.shown_settings,
        mode=call.console.mode.value,
        keeps_requests=recent is not None,
        requests=requests[:_SHOWN],
        kept=len(requests),
        errors=errors(requests),
    )
