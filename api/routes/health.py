"""Is the process alive, and can it work? At the server's root, for whoever runs it."""

import asyncio
from typing import Final

from fastapi import APIRouter, Request, Response
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from cardledger.api.http.errors import ApiError
from cardledger.api.http.request_context import Services, services_of
from cardledger.api.http.responses import answer_json
from cardledger.schema.wire.errors import Code

router = APIRouter(tags=["Health"])

_PATIENCE_S: Final = 3.0
_NO_TABLE: Final = "42P01"


@router.get("/healthz")
async def is_alive() -> Response:
    """Answer, whatever else is broken."""
    return answer_json({"status": "alive"})


@router.get("/readyz")
async def is_ready(request: Request) -> Response:
    """Answer 200 when PostgreSQL answers and has the schema of this release.

    Redis is only a doorbell: without it everything works, a little later.
    """
    services = services_of(request)
    redis = "answers" if await services.client.is_redis_available() else "does not answer"
    revision = await _revision(services)
    found = {
        "redis": redis,
        "schema": revision or "none",
        "schemaWanted": services.schema_head,
    }
    if revision != services.schema_head:
        message = (
            f"the database has schema {revision or 'none'}, this release wants"
            f" {services.schema_head}; run cardledger migrate"
        )
        raise ApiError(Code.SERVICE_UNAVAILABLE, message, details=found)
    return answer_json({"status": "ready", "postgresql": "answers", **found})


async def _revision(services: Services) -> str | None:
    """Return the revision of the schema, None when there is no schema.

    Raises: ApiError SERVICE_UNAVAILABLE when PostgreSQL is away.
    """
    try:
        async with asyncio.timeout(_PATIENCE_S), services.reader.connect() as connection:
            revision: str | None = await connection.scalar(
                text("SELECT version_num FROM alembic_version")
            )
    except (DBAPIError, PoolTimeoutError, TimeoutError) as error:
        if getattr(getattr(error, "orig", None), "sqlstate", None) == _NO_TABLE:
            return None
        message = "the database does not answer; check DATABASE_URL and the server"
        raise ApiError(
            Code.SERVICE_UNAVAILABLE, message, details={"postgresql": "does not answer"}
        ) from error
    return revision
