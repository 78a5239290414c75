"""Routes of the console, on which every failure is a page."""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import structlog
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from typing_extensions import override

from cardledger.api.console import ROOT
from cardledger.api.console.access import cookies, refusals
from cardledger.api.console.access.context import ConsoleContext, NotLoggedInError
from cardledger.api.console.access.forms import fields_of
from cardledger.api.console.access.refusals import Refusal
from cardledger.api.console.html import rendering
from cardledger.api.console.html.headers import HEADERS
from cardledger.api.http.authentication import require
from cardledger.api.http.errors import INTERNAL, ApiError, clear_tracebacks
from cardledger.api.http.middleware import SITE, current_request_id
from cardledger.api.http.middleware import shown as shown_path
from cardledger.ledger.platforms.scopes import Permission
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

_NOT_SHOWN: Final = "That cannot be shown"
_NOT_DONE: Final = "Not done"
_FAILED: Final = "That did not work"
_TITLES: Final = {
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
_INTERNAL: Final = "Something failed in cardledger. Report it with the request id."
_NO_CHOICE: Final = "has no such choice"
_OTHER_LIST: Final = "is that of another list, or of other filters; leave it out"


class ConsoleRoute(APIRoute):
    """A route whose failures are pages: with the status of the API, and words for people."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            return noting_form(request, await _answered(request, handle))

        return shown


def console_router() -> APIRouter:
    """Return a router for pages of the console."""
    return APIRouter(route_class=ConsoleRoute, include_in_schema=False)


def redirect(path: str) -> Response:
    """Return the response that leads to `path`, with a GET."""
    return Response(status_code=SEE_OTHER, headers=HEADERS | {"Location": path})


async def failure(
    request: Request, status: int, message: str, *, is_logged_out: bool = False
) -> Response:
    """Return the page of a failure: with what was typed into a form, and a link back to that."""
    request.state.refusal = None  # If the form was to be shown again, that has failed.
    is_error = status >= INTERNAL.status
    if status == _NOT_FOUND:
        message = _UNKNOWN
    elif status == INTERNAL.status:
        message = _INTERNAL
    back = _back(request, status)
    return await rendering.page(
        request,
        "failure.html",
        call=_call(request),
        status=status,
        title=_NOT_DONE if is_logged_out else _TITLES.get(status) or _title(request, status),
        message=message,
        typed={} if status == _NOT_FOUND else _typed(request),
        back=back,
        is_form=_is_form(request),
        login=f"{LOGIN}?{urlencode({'next': back or ROOT})}" if is_logged_out else None,
        request_id=current_request_id() if is_error else None,
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


async def _answered(
    request: Request, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Return the response of a view, or the page of its failure."""
    if TICKET in request.query_params and request.url.path != LOGIN:
        return await _login(request)
    try:
        return await _handled(request, handle)
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


async def _handled(
    request: Request, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Return the response of a view; when it refuses fields of a form, that is shown again."""
    try:
        return await handle(request)
    except (ApiError, RequestValidationError) as error:
        page, call, problems = refusals.form_page_of(request), _call(request), _problems(error)
        if page is None or page.show is None or call is None or not problems:
            raise
        if isinstance(error, RequestValidationError):
            clear_tracebacks(error)
        require(call.token, Permission.VIEW)  # The view of a form asks for another one.
        request.state.refusal = Refusal(
            _title(request, _BAD_REQUEST),
            status=_BAD_REQUEST,
            problems=problems,
            sent=refusals.sent_in(request),
            form=page.form_of(request),
        )
        return await page.show(request, call)


def _problems(error: ApiError | RequestValidationError) -> Mapping[str, str]:
    """Return what is wrong with each field that is refused; nothing for other errors."""
    problems: dict[str, str] = {}
    if isinstance(error, ApiError):
        listed = (error.details or {}).get("errors", ()) if error.status == _BAD_REQUEST else ()
        for each in listed:
            message = _OTHER_LIST if each["field"] == "cursor" else each["message"]
            problems.setdefault(each["field"], message)
        return problems
    for each in error.errors():
        if each["loc"][0] == "path":
            return {}
        [found] = field_errors([{**each, "loc": each["loc"][1:]}])
        is_choice = each["type"] in {"enum", "literal_error"}  # The page shows what there is.
        problems.setdefault(found.field, _NO_CHOICE if is_choice else found.message)
    return problems


def _call(request: Request) -> ConsoleContext | None:
    call: ConsoleContext | None = getattr(request.state, "call", None)
    return call


def _title(request: Request, status: int) -> str:
    """Return the title of a failure, by what was attempted."""
    if status >= INTERNAL.status:
        return _FAILED
    return _NOT_SHOWN if request.method == "GET" else _NOT_DONE


def _back(request: Request, status: int) -> str | None:
    """Return the path of the page that a form was sent from, or of a page without parameters."""
    page = refusals.form_page_of(request)
    if status == _NOT_FOUND:
        return None
    if not _is_form(request):
        return request.url.path if request.url.query and status == _BAD_REQUEST else None
    return None if page is None else page.address(request)


def _is_form(request: Request) -> bool:
    """Return whether a form was sent from another page: with POST, or to an address of its own."""
    page = refusals.form_page_of(request)
    is_elsewhere = page is not None and page.address(request) != request.url.path
    return request.method != "GET" or is_elsewhere


def _typed(request: Request) -> Mapping[str, str]:
    """Return what was typed into a form, by the labels of its fields."""
    page, sent = refusals.form_page_of(request), refusals.sent_in(request)
    labels = {} if page is None else page.labels
    return {label: sent[name] for name, label in labels.items() if sent.get(name)}


async def _login(request: Request) -> Response:
    if request.method != "GET":
        with suppress(ApiError):  # Another form, or one that is too large: nothing of it is shown.
            request.state.fields = await fields_of(request)
        return await failure(request, _FORBIDDEN, _ENDED, is_logged_out=True)
    if "hx-request" in request.headers:  # A part of a page: the whole page is to be replaced.
        login = f"{LOGIN}?{urlencode({'next': _page_in_sight(request)})}"
        return Response(status_code=_UNAUTHORIZED, headers=HEADERS | {"HX-Redirect": login})
    ticket = request.query_params.get(TICKET)
    if ticket is None and is_from_elsewhere(request):
        return await go_on(request)
    after = {"next": _address(request)}
    return redirect(f"{LOGIN}?{urlencode(after if ticket is None else {TICKET: ticket} | after)}")


def noting_form(request: Request, response: Response) -> Response:
    """Return `response`; after a form, the pages that follow are not those of a replica."""
    call = _call(request)
    has_replica = call is not None and call.console.replica is not None
    if request.method == "POST" and has_replica:
        response.headers.append("Set-Cookie", cookies.acted_cookie(request))
    return response


def _page_in_sight(request: Request) -> str:
    """Return the page of which a part was asked for."""
    try:
        page = urlsplit(request.headers.get("hx-current-url", ""))
    except ValueError:
        return ROOT
    return f"{page.path}?{page.query}" if page.query else page.path or ROOT


def _address(request: Request) -> str:
    """Return path and query of a request, without its ticket."""
    path = quote(request.scope["path"], safe="/:")
    pairs = request.query_params.multi_items()
    query = urlencode([pair for pair in pairs if pair[0] != TICKET])
    return f"{path}?{query}" if query else path


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    clear_tracebacks(error)
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
            return await _slow(request)
    if isinstance(error.__cause__, Exception):
        _log.warning("console database unavailable", error=message_of(error.__cause__))
    return await failure(request, _UNAVAILABLE, _NO_DATABASE)


async def _slow(request: Request) -> Response:
    """Answer for a page that was stopped: a list has a filter to narrow."""
    page, call = refusals.form_page_of(request), _call(request)
    if page is None or page.show is None or not page.is_list or call is None:
        return await failure(request, _UNAVAILABLE, f"{_STOPPED} {_RELOAD}")
    request.state.refusal = Refusal(f"{_STOPPED} {_NARROW}", status=_UNAVAILABLE)
    return await page.show(request, call)


async def _unavailable(request: Request, error: Exception) -> Response:
    if isinstance(error, PoolTimeoutError):  # PostgreSQL answers; others have the connections.
        counted.refuse(counted.Refusal.CONNECTIONS)
        return await failure(request, _UNAVAILABLE, _ALL_IN_USE)
    if is_cancelled(error):
        counted.refuse(counted.Refusal.TOO_SLOW)
        return await _slow(request)
    counted.refuse(counted.Refusal.DATABASE_UNAVAILABLE)
    DATABASE.failed(error)
    return await failure(request, _UNAVAILABLE, _NO_DATABASE)
