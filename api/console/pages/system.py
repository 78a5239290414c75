"""System: versions, checks, queues, settings without secrets, the last requests."""

import platform
from dataclasses import asdict
from typing import Final

from fastapi import Request, Response

from cardledger import __version__
from cardledger.api.console import navigation
from cardledger.api.console.access.context import Viewer
from cardledger.api.console.html import documents, rendering
from cardledger.api.console.html.documents import Document
from cardledger.api.console.routing import console_router
from cardledger.api.health.examination import Report
from cardledger.api.http.recent_requests import RecentRequest, RecentRequests, errors
from cardledger.api.http.request_context import public_root
from cardledger.ledger.queries.console import platform_figures, versions
from cardledger.ledger.queries.console.running_workers import RunningWorker

_PART: Final = navigation.SYSTEM
_ONLY_READINESS: Final = (
    "The command returns `readiness`, as the answer or the details of its error. cardledger doctor"
    " --json has the findings of `examination`; the rest is of this page only."
)
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
    # What an operator does about it, in the whole installation, is not a platform's to know.
    has_details = call.services.is_sandbox
    recent: RecentRequests | None = request.app.state.recent_requests
    requests = [] if recent is None else recent.of(call.platform_id)
    settings = [("CARDLEDGER_CONSOLE", call.console.mode.value), *request.app.state.shown_settings]
    return await rendering.page(
        request,
        "system.html",
        call=call,
        part=_PART,
        state=readiness.state,
        failures=readiness.failures,
        standstill=readiness.standstill,
        report=report,
        has_details=has_details,
        states=_STATES,
        postgresql=postgresql,
        python=platform.python_version(),
        depths=depths,
        settings=settings,
        keeps_requests=recent is not None,
        requests=requests[:_SHOWN],
        kept=len(requests),
        errors=errors(requests),
        api=rendering.Command(
            command=f"curl {rendering.quoted(f'{public_root(request)}/readyz')}",
            document={
                "cardledger": __version__,
                "python": platform.python_version(),
                "readiness": readiness.state,
                "standstill": readiness.standstill and readiness.standstill.detail,
                "postgresql": asdict(postgresql),
                "examination": None
                if report is None
                else _examination(report, has_details=has_details),
                "queues": documents.waiting(depths),
                "settings": dict(settings),
                "errors": [
                    {"code": code, "operation": f"{method} {template}", "count": count}
                    for code, method, template, count in errors(requests)
                ],
                "requests": [_request(each) for each in requests[:_SHOWN]],
                "keptRequestCount": len(requests),
            },
            note=_ONLY_READINESS,
        ),
    )


def _examination(report: Report, *, has_details: bool) -> Document:
    """Return the findings and the workers in JSON; without details, of a finding name and state."""
    workers = report.workers
    return {
        "at": documents.moment(report.at),
        "isOld": report.is_old,
        "findings": [
            asdict(check) if has_details else {"name": check.name, "state": check.state}
            for check in report.checks
        ],
        "workers": None if workers is None else [_worker(each) for each in workers],
    }


def _worker(worker: RunningWorker) -> Document:
    return {
        "id": worker.id,
        "process": worker.pid,
        "since": documents.moment(worker.began_at),
        "decidesEvents": worker.decides_events,
        "sendsWebhooks": worker.sends_webhooks,
        "lastStatementAt": documents.moment(worker.last_statement_at),
    }


def _request(each: RecentRequest) -> Document:
    return {
        "at": documents.moment(each.at),
        "requestId": each.request_id,
        "caller": each.caller,
        "operation": f"{each.method} {each.path}",
        "status": each.status,
        "code": each.code,
        "durationMs": each.duration_ms,
    }
