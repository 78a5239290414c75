"""Liveness, readiness and metrics of the process, at the server's root."""

from typing import Final

from fastapi import Request, Response

from cardledger.api.http.errors import ApiError
from cardledger.api.http.request_context import services_of
from cardledger.api.http.responses import json_response
from cardledger.api.http.routing import public_router
from cardledger.schema.wire.errors import Code
from cardledger.workers.metrics.access import PATH, Access, Scrape, Verdict
from cardledger.workers.metrics.scrapes import CONTENT_TYPE, Scrapes

router = public_router("Health")

_CHALLENGE: Final = 'Bearer realm="metrics"'


@router.get("/healthz")
async def is_alive() -> Response:
    """Return 200 as long as the process runs."""
    return json_response({"status": "alive"})


@router.get("/readyz")
async def is_ready(request: Request) -> Response:
    """Return 200 when PostgreSQL, schema, clock and queues are as they should be.

    Answers within two seconds. `details.failedChecks` of a 503 says what failed, since when and
    what to do. Redis is not required: without it events are processed with a small delay.
    """
    answer = await services_of(request).readiness.answer()
    if answer.failures:
        first = answer.failures[0]
        message = f"{first.detail} {first.fix}"
        raise ApiError(Code.SERVICE_UNAVAILABLE, message, details=answer.state)
    return json_response({"status": "ready", **answer.state})


@router.get(PATH, include_in_schema=False)
async def get_metrics(request: Request) -> Response:
    """Return the metrics of this process, to who has the token, or to this machine alone."""
    access: Access = request.app.state.metrics_access
    match access.verdict(_scrape(request)):
        case Verdict.UNKNOWN:
            raise ApiError(Code.REFERENCE_NOT_FOUND, "Unknown path.")
        case Verdict.UNAUTHORIZED:
            message = "Send the header Authorization: Bearer <token>, once."
            raise ApiError(Code.UNAUTHORIZED, message, headers={"WWW-Authenticate": _CHALLENGE})
        case Verdict.ALLOWED:
            scrapes: Scrapes = request.app.state.scrapes
            headers = {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"}
            return Response(await scrapes.page(), headers=headers)


def _scrape(request: Request) -> Scrape:
    peer = "" if request.client is None else request.client.host
    return Scrape(peer, request.scope["http_version"], request.headers.items())
