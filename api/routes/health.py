"""Liveness and readiness of the process, at the server's root."""

import asyncio
from typing import Final

from fastapi import APIRouter, Request, Response
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from cardledger.api.http.errors import ApiError
from cardledger.api.http.request_context import Services, services_of
from cardledger.api.http.responses import json_response
from cardledger.schema.wire.errors import Code

router = APIRouter(tags=["Health"])

_DATABASE_TIMEOUT_S: Final = 3.0
_UNDEFINED_TABLE: Final = "42P01"


@router.get("/healthz")
async def is_alive() -> Response:
    """Return 200 as long as the process runs."""
    return json_response({"status": "alive"})


@router.get("/readyz")
async def is_ready(request: Request) -> Response:
    """Return 200 when PostgreSQL responds and has the schema of this release.

    Redis is not required: without it events are processed with a small delay.
    """
    services = services_of(request)
    redis = "answers" if await services.client.is_redis_available() else "does not answer"
    revision = await _revision(services)
    state = {
        "redis": redis,
        "schema": revision or "none",
        "schemaWanted": services.schema_head,
    }
    if revision != services.schema_head:
        message = (
            f"The database has schema {revision or 'none'}, this release requires"
            f" {services.schema_head}; run cardledger migrate."
        )
        raise ApiError(Code.SERVICE_UNAVAILABLE, message, details=state)
    return json_response({"status": "ready", "postgresql": "answers", **state})


async def _revision(services: Services) -> str | None:
    """Return the revision of the schema, None when there is no schema.

    Raises: ApiError SERVICE_UNAVAILABLE when PostgreSQL does not respond.
    """
    try:
        async with asyncio.timeout(_DATABASE_TIMEOUT_S), services.reader.connect() as connection:
            revision: str | None = await connection.scalar(
                text("SELECT version_num FROM alembic_version")
            )
    except (DBAPIError, PoolTimeoutError, TimeoutError) as error:
        if getattr(getattr(error, "orig", None), "sqlstate", None) == _UNDEFINED_TABLE:
            return None
        message = "The database is unavailable; check DATABASE_URL and the server."
        raise ApiError(
            Code.SERVICE_UNAVAILABLE, message, details={"postgresql": "does not answer"}
        ) from error
    return revision
