"""The outermost middleware: request ids, the request log, HEAD, and unexpected exceptions."""

import logging
import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override
from uuid_utils import uuid4

from cardledger.api.http import errors
from cardledger.api.http.errors import ApiError
from cardledger.api.http.recent_requests import RecentRequest, RecentRequests, code_in
from cardledger.api.http.request_context import RequestContext
from cardledger.schema.wire.errors import Code, shortened
from cardledger.workers.metrics import counted
from cardledger.workers.metrics.access import PATH as METRICS
from cardledger.workers.tracing import spans

REQUEST_ID: Final = "X-Request-Id"

SITE: Final = "Sec-Fetch-Site"
"""What browsers send and pages cannot set; credentials of a browser are not the page's intent."""

_REQUEST_ID: Final = REQUEST_ID.lower().encode()
_SITE: Final = SITE.lower().encode()
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})

MAX_HEADERS: Final = 100
MAX_PARAMETERS: Final = 50

_SHOWN: Final = 200  # Characters of a path in logs.
_VALID_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}", re.ASCII)
PROBES: Final = frozenset({"/healthz", "/readyz"})
"""Paths that are answered while all connections are in use."""

_QUIET: Final = PROBES | {METRICS}  # Logged when they fail.
_CLIENT_CLOSED_REQUEST: Final = 499  # In logs only: the caller left before the response.

# Matches mistyped paths of the page as well: they may contain a token, too.
_TOKEN: Final = re.compile(
    r"(embed/+(?:cards|kyc|invitations)/+).+|((?:device-codes|invitations)/+)[^/]+",
    re.IGNORECASE | re.DOTALL,
)

_log = structlog.get_logger()


def shown(path: str) -> str:
    """Return `path` for logs: short, without tokens of pages, codes of devices and invitations."""
    return shortened(_TOKEN.sub(r"\1\2…", path), _SHOWN)


def _refusal(scope: Scope) -> ApiError | None:
    """Return why a request is refused before anything is parsed of its head, if it is."""
    if len(scope["headers"]) > MAX_HEADERS:
        message = f"Too many headers; send at most {MAX_HEADERS}."
        return ApiError(Code.INVALID_INPUT, message, status=errors.HEAD_TOO_LARGE)
    query: bytes = scope["query_string"]
    if query and query.count(b"&") >= MAX_PARAMETERS:
        message = f"Too many query parameters; send at most {MAX_PARAMETERS}."
        return ApiError(Code.INVALID_INPUT, message)
    if scope["method"] not in _SAFE and _is_cross_site(scope):
        message = (
            f"{SITE}: cross-site. A page of another site must not change anything here; send the"
            " request from a server, or from a page of this site."
        )
        return ApiError(Code.FORBIDDEN, message, details={"header": SITE})
    return None


def _call(scope: Scope) -> RequestContext | None:
    """Return the context of a request that was admitted."""
    call = scope.get("state", {}).get("call")
    return call if isinstance(call, RequestContext) else None


def _line(scope: Scope, status: int, seconds: float) -> dict[str, Any]:
    """Return what the log says of a request: after a theft, what a token or an agent did.

    An admitted request adds the ids that it is about.
    """
    call, client = _call(scope), scope.get("client")
    return {
        "client": client[0] if client else None,
        "caller": None if call is None else call.caller,
        "method": scope["method"],
        "path": shown(scope["path"]),
        "status": status,
        "duration_ms": round(seconds * 1000, 1),
        **({} if call is None else call.subjects),
    }


def _is_cross_site(scope: Scope) -> bool:
    """Return whether a browser says that a page of another site caused the request."""
    return any(
        name == _SITE and value.strip().lower() == b"cross-site" for name, value in scope["headers"]
    )


def _request_id(scope: Scope) -> str:
    """Return the id that the caller has chosen for the request, if it is valid, or a new one."""
    for name, value in scope["headers"]:
        if name == _REQUEST_ID:
            requested = value.decode("latin-1")
            return requested if _VALID_REQUEST_ID.fullmatch(requested) else str(uuid4())
    return str(uuid4())


def current_request_id() -> str:
    """Return the id of the request that is handled now, as its response has it."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))


def _span(scope: Scope) -> AbstractContextManager[object]:
    """Return the span of a request, which is none without an SDK; probes and scrapes have none."""
    if not spans.is_active() or scope["path"] in _QUIET:
        return nullcontext()
    return spans.request(scope["method"], Headers(scope=scope).getlist("traceparent"))


def templates(app: FastAPI) -> Mapping[object, str]:
    """Return the template of the path of each endpoint, as `app.state.templates`.

    Metrics name requests by it: paths have ids, and are as many as clients like.
    """
    routes = iter_route_contexts(app.routes)
    return {route.endpoint: route.path for route in routes if route.endpoint and route.path}


def _template(routed: Scope) -> str | None:
    """Return the template of the path that a request was routed to; None: to none."""
    app: FastAPI | None = routed.get("app")
    known: Mapping[object, str] = {} if app is None else getattr(app.state, "templates", {})
    return known.get(routed.get("endpoint"))


def _recent(routed: Scope) -> RecentRequests | None:
    """Return the last requests of this process, which a sandbox keeps."""
    app: FastAPI | None = routed.get("app")
    return None if app is None else getattr(app.state, "recent_requests", None)


def _note(
    scope: Scope, request_id: str, template: str, code: str | None, line: Mapping[str, Any]
) -> None:
    """Keep a request of a platform for the console of a sandbox; pages of the console are not.

    `line` is what the log says of it.
    """
    recent = _recent(scope)
    call = _call(scope)
    if recent is None or call is None or template.startswith("/console"):
        return
    recent.note(
        RecentRequest(
            at=call.services.clock(),
            platform_id=call.platform_id,
            request_id=request_id,
            caller=line["caller"],
            method=line["method"],
            path=line["path"],
            template=template,
            status=line["status"],
            code=code,
            duration_ms=line["duration_ms"],
        )
    )


class _HideTokens(logging.Filter):
    """Hides tokens in uvicorn's access log, where the path is one of the arguments."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                shown(argument) if isinstance(argument, str) else argument
                for argument in record.args
            )
        return True


_HIDE_TOKENS: Final = _HideTokens()


def hide_tokens_in_access_log() -> None:
    """Keep tokens out of uvicorn's access log, for installations that enable it."""
    logging.getLogger("uvicorn.access").addFilter(_HIDE_TOKENS)


class Edge:
    """Wraps the application; an exception inside becomes an error response."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self._app: Final = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        with structlog.contextvars.bound_contextvars(request_id=request_id), _span(scope):
            await self._handle(scope, receive, send, request_id)

    async def _handle(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        status = 0
        began = time.perf_counter()
        counted.begin_request()
        took: float | None = None  # Until the response; what was cancelled may end later.
        code: str | None = None

        # HEAD is routed as GET: the same headers, without the body.
        is_head = scope["method"] == "HEAD"
        routed: Scope = {**scope, "method": "GET", errors.IS_HEAD: True} if is_head else scope

        async def send_with_id(message: Message) -> None:
            nonlocal status, took, code
            if message["type"] == "http.response.start":
                status = message["status"]
                took = time.perf_counter() - began
                message["headers"] = [*message["headers"], (_REQUEST_ID, request_id.encode())]
            elif status >= HTTPStatus.BAD_REQUEST and _recent(scope) is not None:
                code = code or code_in(message.get("body", b""))
            if is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        refusal = _refusal(scope)
        served = self._app if refusal is None else errors.error_response(refusal)
        try:
            await served(routed, receive, send_with_id)
        except ClientDisconnect:
            status = status or _CLIENT_CLOSED_REQUEST
        except Exception:  # noqa: BLE001 - outermost: logged, and a response
            _log.exception("request failed", path=shown(scope["path"]))
            if not status:
                await errors.error_response(errors.INTERNAL)(scope, receive, send_with_id)
        finally:
            seconds = took or time.perf_counter() - began
            route = _template(routed)
            counted.end_request(route, scope["method"], status, seconds)
            spans.end_request(scope["method"], route, status)
            line = _line(scope, status, seconds)
            _note(scope, request_id, route or line["path"], code, line)
            is_probe = scope["path"] in _QUIET and status < HTTPStatus.BAD_REQUEST
            (_log.debug if is_probe else _log.info)("request", **line)
