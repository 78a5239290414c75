"""Routes of the console, on which every failure is a page."""

from collections.abc import Callable, Coroutine
from typing import Any, Final
from urllib.parse import quote, urlencode

import structlog
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from typing_extensions import override

from cardledger.api.console import ROOT, navigation
from cardledger.api.console.access.context import ConsoleContext, NotLoggedInError
from cardledger.api.console.html import rendering
from cardledger.api.console.html.headers import HEADERS
from cardledger.api.http.errors import INTERNAL, ApiError
from cardledger.api.http.middleware import SITE
from cardledger.api.http.middleware import shown as shown_path
from cardledger.ledger.storage.engines import UNAVAILABLE_ERRORS, is_cancelled, message_of
from cardledger.ledger.storage.snapshot_connections import (
    STATEMENT_LIMIT_S,
    SnapshotError,
    SnapshotProblem,
)
from cardledger.schema.wire.errors import field_errors, sentence
from cardledger.workers.metrics import counted
from cardledger.workers.signals.outage_log import DATABASE

LOGIN: Final = f"{ROOT}/login"
TICKET: Final = "ticket"
"""The query parameter that begins a session, on any page."""

SEE_OTHER: Final = 303

_log = structlog.get_logger()

_BAD_REQUEST: Final = 400
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_UNAVAILABLE: Final = 503

_TITLES: Final = {
    _BAD_REQUEST: "That cannot be shown",
    _FORBIDDEN: "Not allowed",
    _NOT_FOUND: "Not found",
    429: "Too many requests",
    _UNAVAILABLE: "Not available now",
}
_UNKNOWN: Final = "There is nothing here with this address or id. Check the id, and the platform."
_STOPPED: Final = f"Reading this took longer than {STATEMENT_LIMIT_S} s, so it was stopped."
_NARROW: Final = "Narrow the filter: one customer, card or account, or a shorter time."
_RELOAD: Final = "Reload the page in a moment."
_NO_DATABASE: Final = "PostgreSQL does not answer. Nothing is lost; reload the page in a moment."
_BUSY: Final = "The console is busy; reload."
_ALL_IN_USE: Final = "The installation is busy; try again in a moment."
_REFUSALS: Final = {
    SnapshotProblem.BUSY: counted.Refusal.CONNECTIONS,
    SnapshotProblem.SLOW: counted.Refusal.TOO_SLOW,
    SnapshotProblem.AWAY: counted.Refusal.DATABASE_UNAVAILABLE,
}
_ENDED: Final = "Your session has ended, and nothing was sent. Log in and send the form again."


class ConsoleRoute(APIRoute):
    """A route whose failures are pages: with the status of the API, and words for people."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            if TICKET in request.query_params and request.url.path != LOGIN:
                return await _login(request)
            try:
                return await handle(request)
            except NotLoggedInError:
                return await _login(request)
            except ApiError as error:
                return await failure(request, error.status, error.message)
            except RequestValidationError as error:
                return await _invalid(request, error)
            except SnapshotError as error:
                return await _unread(request, error)
            except UNAVAILABLE_ERRORS as error:
                return await _unavailable(request, error)
            except Exception:  # noqa: BLE001 - logged, and a page
                # As the outermost middleware does, which would answer with JSON.
                _log.exception("request failed", path=shown_path(request.url.path))
                return await failure(request, INTERNAL.status, INTERNAL.message)

        return shown


def console_router() -> APIRouter:
    """Return a router for pages of the console."""
    return APIRouter(route_class=ConsoleRoute, include_in_schema=False)


def redirect(path: str) -> Response:
    """Return the response that leads to `path`, with a GET."""
    return Response(status_code=SEE_OTHER, headers=HEADERS | {"Location": path})


async def failure(request: Request, status: int, message: str) -> Response:
    """Return the page of a failure."""
    call: ConsoleContext | None = getattr(request.state, "call", None)
    title = _TITLES.get(status, "That did not work")
    if status == _NOT_FOUND:
        message = _UNKNOWN
    return await rendering.page(
        request, "failure.html", call=call, status=status, title=title, message=message
    )


def is_from_elsewhere(request: Request) -> bool:
    """Return whether a browser opens a page by a link of another site.

    Then it does not send the cookie of a session, although it may have one.
    """
    sent = request.headers
    return (sent.get(SITE), sent.get("Sec-Fetch-Mode"), sent.get("Sec-Fetch-Dest")) == (
        "cross-site",
        "navigate",
        "document",
    )


async def go_on(request: Request) -> Response:
    """Return a page of our own that leads to the same address, with the cookie this time.

    Once: a browser does not say of this second request that it comes from another site.
    """
    return await rendering.page(request, "arrival.html", address=_address(request))


async def _login(request: Request) -> Response:
    if request.method != "GET":
        return await failure(request, _FORBIDDEN, _ENDED)
    if "hx-request" in request.headers:  # A part of a page: the whole page is to be replaced.
        headers = HEADERS | {"HX-Redirect": LOGIN}
        return Response(status_code=_UNAUTHORIZED, headers=headers)
    ticket = request.query_params.get(TICKET)
    if ticket is None and is_from_elsewhere(request):
        return await go_on(request)
    after = {"next": _address(request)}
    return redirect(f"{LOGIN}?{urlencode(after if ticket is None else {TICKET: ticket} | after)}")


def _address(request: Request) -> str:
    """Return path and query of a request, without its ticket."""
    path = quote(request.scope["path"], safe="/:")
    pairs = request.query_params.multi_items()
    query = urlencode([pair for pair in pairs if pair[0] != TICKET])
    return f"{path}?{query}" if query else path


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    complaints = error.errors()
    if any(complaint["loc"][0] == "path" for complaint in complaints):
        return await failure(request, _NOT_FOUND, _UNKNOWN)  # No resource has a malformed id.
    named = [{**complaint, "loc": complaint["loc"][1:]} for complaint in complaints]
    return await failure(request, _BAD_REQUEST, sentence(field_errors(named)))


async def _unread(request: Request, error: SnapshotError) -> Response:
    """Answer for the console's own connections: what they lack is no outage of the API."""
    counted.refuse(_REFUSALS[error.problem])
    match error.problem:
        case SnapshotProblem.BUSY:
            return await failure(request, _UNAVAILABLE, _BUSY)
        case SnapshotProblem.SLOW:
            return await failure(request, _UNAVAILABLE, _slow(request))
    if isinstance(error.__cause__, Exception):
        _log.warning("console database unavailable", error=message_of(error.__cause__))
    return await failure(request, _UNAVAILABLE, _NO_DATABASE)


def _slow(request: Request) -> str:
    """Return what to do about a page that was stopped: only a list has a filter to narrow."""
    return f"{_STOPPED} {_NARROW if request.url.path in navigation.FILTERED else _RELOAD}"


async def _unavailable(request: Request, error: Exception) -> Response:
    if isinstance(error, PoolTimeoutError):  # PostgreSQL answers; others have the connections.
        counted.refuse(counted.Refusal.CONNECTIONS)
        return await failure(request, _UNAVAILABLE, _ALL_IN_USE)
    if is_cancelled(error):
        counted.refuse(counted.Refusal.TOO_SLOW)
        return await failure(request, _UNAVAILABLE, _slow(request))
    counted.refuse(counted.Refusal.DATABASE_UNAVAILABLE)
    DATABASE.failed(error)
    return await failure(request, _UNAVAILABLE, _NO_DATABASE)
