"""The answer to a request of the console whose time is over: a page, as of every other failure."""

from typing import Final

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from cardledger.api.console import is_below_root
from cardledger.api.console.routing import failure, noting_form

_UNAVAILABLE: Final = 503
_READ: Final = "The database does not answer in time. Reload the page in a moment."
_SENT: Final = (
    "The database does not answer in time, and the form may have taken effect. Reload this page to"
    " send the same form again: it is applied once. A new form would be applied as well."
)


def answer_of(scope: Scope) -> ASGIApp | None:
    """Return what answers a request that took too long; None: it is none of the console."""
    return _answer if is_below_root(scope["path"]) else None


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    message = _READ if request.method in {"GET", "HEAD"} else _SENT
    response = await failure(request, _UNAVAILABLE, message)
    await noting_form(request, response)(scope, receive, send)
