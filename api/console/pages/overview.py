"""Overview: whether the ledger keeps up, what is due, what fails, and the latest purchases."""

from datetime import datetime
from functools import partial
from typing import Final

from fastapi import Request, Response

from cardledger.api.console import ROOT, navigation
from cardledger.api.console.access.context import ConsoleContext, Viewer
from cardledger.api.console.html import documents, rendering
from cardledger.api.console.html.documents import Document
from cardledger.api.console.lists.filters import Filters
from cardledger.api.console.lists.list_page import list_call
from cardledger.api.console.look import Look
from cardledger.api.console.rates import WINDOW, Rate
from cardledger.api.console.routing import console_router
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.card_transactions import CardTransactionFilters
from cardledger.ledger.queries.console import platform_figures
from cardledger.ledger.queries.console.platform_figures import OpenExceptions
from cardledger.ledger.storage import paging
from cardledger.schema.wire.common import amount, public_id

_LATEST: Final = 8
_PART_TEMPLATE: Final = "live.html"  # Of the part of the page that is refreshed.
_NO_FIGURES: Final = (
    "The command lists the latest card transactions, `data`; the other figures are counted for this"
    " page. Those of the whole installation are at /metrics, and /readyz has the failed checks."
)

router = console_router()


@router.get(ROOT)
async def overview(request: Request, call: Viewer) -> Response:
    """Show the figures of now, and the latest card transactions."""
    return await _shown(request, call, "overview.html", await _look(call))


@router.get(f"{ROOT}/live")
async def live(request: Request, call: Viewer) -> Response:
    """Return the part of the overview that is refreshed while it is looked at.

    The viewers of a platform share what is read for it.
    """
    look = await call.console.looks.of(call.platform_id, partial(_look, call))
    return await _shown(request, call, _PART_TEMPLATE, look)


async def _look(call: ConsoleContext) -> Look:
    # Before the snapshot: it waits for an observation over a connection of its own.
    readiness = await call.services.readiness.answer()
    # Viewers share it, and the rates that are kept: all of them are of one server.
    async with call.snapshot(may_lag=True) as connection:
        at = call.now()
        figures = await platform_figures.read(connection, platform_id=call.platform_id, now=at)
        rates = await call.console.rates.look(connection, call.platform_id, at)
        page = await card_transactions.page(
            connection,
            platform_id=call.platform_id,
            filters=CardTransactionFilters(),
            wanted=paging.Wanted(limit=_LATEST, newest_first=True),
            count_limit=0,
        )
    return Look(at=at, readiness=readiness, figures=figures, rates=rates, latest=page.items)


async def _shown(request: Request, call: ConsoleContext, template: str, look: Look) -> Response:
    checks = look.readiness.state["failedChecks"]
    return await rendering.page(
        request,
        template,
        call=call,
        part=navigation.OVERVIEW,
        at=look.at,
        figures=look.figures,
        rates=look.rates,
        ages=platform_figures.AGES,
        standstill=look.readiness.standstill,
        failed_checks=[
            (name, check, datetime.fromisoformat(check["since"])) for name, check in checks.items()
        ],
        latest=look.latest,
        api=None
        if template == _PART_TEMPLATE
        else list_call(
            request,
            call,
            Filters(limit=_LATEST),
            "/transactions?type=CARD&sortOrder=desc",
            look.latest,
            others=_document(look, checks),
            note=_NO_FIGURES,
        ),
    )


def _document(look: Look, checks: Document) -> Document:
    """Return the figures in JSON: `isAtLeast` where not all was counted."""
    figures, rates = look.figures, look.rates
    standstill = look.readiness.standstill
    return {
        "asOf": documents.moment(look.at),
        "standstill": standstill and standstill.detail,
        "failedChecks": checks,
        "decisions": _rate(rates.decisions),
        "webhooksDelivered": _rate(rates.webhooks),
        "outcomes": dict(rates.outcomes),
        "waiting": documents.waiting(figures.depths),
        "openExceptions": [_exceptions(each) for each in figures.exceptions],
        "failingEndpoints": [
            {
                "id": public_id("WebhookEndpoint", each.id),
                "url": each.url,
                "state": each.state,
                "failingSince": documents.moment(each.failing_since),
            }
            for each in figures.failing_endpoints
        ],
        "lastVerification": figures.verification
        and {
            "endedAt": documents.moment(figures.verification.ended_at),
            "differenceCount": figures.verification.differences,
        },
    }


def _rate(rate: Rate) -> Document:
    minutes = int(WINDOW.total_seconds()) // 60
    return {
        "minutes": minutes,
        "count": rate.total,
        "isAtLeast": rate.unknown_s > 0,
        "perSecond": rate.per_second,
        "intervals": list(rate.counts),
        "unknownSeconds": rate.unknown_s,
    }


def _exceptions(each: OpenExceptions) -> Document:
    return {
        "count": each.count,
        "dueAmount": amount(each.total, each.currency),
        "isAtLeast": each.is_capped,
        "byAge": [
            {"age": age, "count": count, "dueAmount": amount(due, each.currency)}
            for age, count, due in zip(platform_figures.AGES, each.counts, each.due, strict=True)
        ],
    }
