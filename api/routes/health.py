"""Liveness and readiness of the process, at the server's root."""

from fastapi import APIRouter, Request, Response

from cardledger.api.http.errors import ApiError
from cardledger.api.http.request_context import services_of
from cardledger.api.http.responses import json_response
from cardledger.schema.wire.errors import Code

router = APIRouter(tags=["Health"])


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
