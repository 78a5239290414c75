"""Log in with an API token, or by a ticket in a link; log out."""

from base64 import b64encode
from typing import Annotated, Final

import structlog
from fastapi import Query, Request, Response

from cardledger.api.console import ROOT
from cardledger.api.console.access import cookies, sessions
from cardledger.api.console.access.context import NotLoggedInError, context_of
from cardledger.api.console.access.forms import FORM_TOKEN, fields_of
from cardledger.api.console.html import rendering
from cardledger.api.console.routing import (
    LOGIN,
    console_router,
    go_on,
    is_from_elsewhere,
    redirect,
)
from cardledger.api.http.authentication import require
from cardledger.api.http.errors import IS_HEAD, ApiError
from cardledger.api.http.rate_limits import address_of
from cardledger.api.http.request_context import services_of
from cardledger.ledger.platforms import console_tickets
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.errors import Code

_MAX_PATH: Final = 2_048
_MAX_TICKET: Final = 100
_UNAUTHORIZED: Final = 401
_WRONG: Final = "Unknown client id or wrong secret."
_ENDED: Final = "This link was used, or is older than a minute. Log in with an API token."

_log = structlog.get_logger()

router = console_router()


@router.get(LOGIN)
async def show_login(
    request: Request,
    after: Annotated[str, Query(alias="next", max_length=_MAX_PATH)] = ROOT,
    ticket: Annotated[str | None, Query(max_length=_MAX_TICKET)] = None,
) -> Response:
    """Show the form of the login, or begin a session by a ticket.

    Those who have a session are led to the page that they wanted.
    """
    if ticket is not None and not _is_preview(request):
        return await _redeem(request, ticket, after)
    if is_from_elsewhere(request):
        return await go_on(request)
    return await _led_on(request, after) or await _form(request, after)


@router.post(LOGIN)
async def log_in(request: Request) -> Response:
    """Begin a session of the token whose credentials the form has; wrong ones are counted."""
    fields = await fields_of(request)
    client_id, secret = fields.get("client_id", "").strip(), fields.get("client_secret", "").strip()
    after = fields.get("next", ROOT)
    credentials = b64encode(f"{client_id}:{secret}".encode()).decode()
    services = services_of(request)
    try:
        token = await services.authenticator.token(
            [f"Basic {credentials}"], address=address_of(request)
        )
        require(token, Permission.VIEW)
    except ApiError as error:
        message = _WRONG if error.code is Code.UNAUTHORIZED else error.message
        return await _form(
            request, after, status=error.status, message=message, client_id=client_id
        )
    return await _begin(request, client_id, after, secret=secret)


@router.post(f"{ROOT}/logout")
async def log_out(request: Request) -> Response:
    """End the session in this browser."""
    fields = await fields_of(request)
    try:
        call = await context_of(request)
    except NotLoggedInError:
        return redirect(LOGIN)
    if not sessions.is_form_token(fields.get(FORM_TOKEN, ""), call.session, call.keys):
        raise ApiError(Code.FORBIDDEN, "This form belongs to another session; reload the page.")
    response = redirect(LOGIN)
    response.headers["Set-Cookie"] = cookies.session_cookie(request, "", 0)
    return response


async def _redeem(request: Request, ticket: str, after: str) -> Response:
    """Begin a session by a ticket, and lead to the page that it was for."""
    services = services_of(request)
    # A stranger's ticket is looked up as credentials are: few at a time, fewer of those who guess.
    async with services.authenticator.looking_up(address_of(request), None, b"") as connection:
        client_id = await console_tickets.redeem(
            connection, ticket=ticket, keys=services.keys, at=services.clock()
        )
    if client_id is None:
        # An unknown ticket is a guess, and guesses are bounded as those of secrets are.
        await services.authenticator.count_failure(address_of(request), credential=None)
        return await _led_on(request, after) or await _form(
            request, after, status=_UNAUTHORIZED, message=_ENDED
        )
    return await _begin(request, client_id, after)


async def _led_on(request: Request, after: str) -> Response | None:
    """Return the response that leads to `after`; None without a session."""
    try:
        await context_of(request)
    except NotLoggedInError:
        return None
    return redirect(_own_path(after))


async def _begin(
    request: Request, client_id: str, after: str, *, secret: str | None = None
) -> Response:
    """Begin a session that ends with `secret`; None: with the current secret of the token."""
    services = services_of(request)
    ended = _ENDED if secret is None else _WRONG
    stamp = await services.authenticator.session_stamp(
        client_id, secret, address=address_of(request)
    )
    if stamp is None:
        return await _form(request, after, status=_UNAUTHORIZED, message=ended)
    session = sessions.begin(client_id, stamp, at=services.clock())
    proven = await services.authenticator.session_token(
        client_id, stamp, address=address_of(request)
    )
    if proven is None:
        return await _form(request, after, status=_UNAUTHORIZED, message=ended)
    require(proven.token, Permission.VIEW)
    _log.info("console session begun", caller=public_id("Token", proven.token.id))
    response = redirect(_own_path(after))
    value = sessions.cookie_of(session, services.keys)
    response.headers["Set-Cookie"] = cookies.session_cookie(
        request, value, int(sessions.LIFETIME.total_seconds())
    )
    return response


async def _form(
    request: Request, after: str, *, status: int = 200, message: str = "", client_id: str = ""
) -> Response:
    return await rendering.page(
        request,
        "login.html",
        status=status,
        after=_own_path(after),
        message=message,
        client_id=client_id,
    )


def _own_path(path: str) -> str:
    """Return `path` if it is a page of the console, else the first page."""
    is_page = path == ROOT or path.startswith((f"{ROOT}/", f"{ROOT}?"))
    is_plain = path.isascii() and path.isprintable() and "\\" not in path and ".." not in path
    return path if is_page and is_plain and len(path) <= _MAX_PATH else ROOT


def _is_preview(request: Request) -> bool:
    """Return whether a program looks at a link before a person does; it must not use it up."""
    return IS_HEAD in request.scope or "sec-purpose" in request.headers
