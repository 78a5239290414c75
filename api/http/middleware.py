"""The edge: a request id on every answer, one line in the log, and the last envelope."""

import logging
import re
import time
from http import HTTPStatus
from typing import Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override
from uuid_utils import uuid4

from cardledger.api.http import errors

REQUEST_ID: Final = "X-Request-Id"

_SANE: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}", re.ASCII)
_PROBES: Final = frozenset({"/healthz", "/readyz"})  # Asked for ever; told when they fail.
_GONE: Final = 499  # What logs say when the caller left before the answer.

# Also of paths that are only meant to be that of the page: what looks like a token is one.
_TOKEN: Final = re.compile(r"(embed/+cards/+).+|(device-codes/+)[^/]+", re.IGNORECASE | re.DOTALL)

_log = structlog.get_logger()


def shown(path: str) -> str:
    """Return `path` as logs may have it: a card's number has a secret address, a code is one."""
    return _TOKEN.sub(r"\1\2…", path)


class _HideTokens(logging.Filter):
    """Hides tokens in uvicorn's own access log, where the path is one of the arguments."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(shown(a) if isinstance(a, str) else a for a in record.args)
        return True


_HIDE_TOKENS: Final = _HideTokens()


def hide_tokens_in_access_log() -> None:
    """See to it that uvicorn's access log, where somebody switches it on, has no tokens."""
    logging.getLogger("uvicorn.access").addFilter(_HIDE_TOKENS)


class Edge:
    """Wraps the application; nothing that goes wrong inside gets past it."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self._app: Final = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = asked if _SANE.fullmatch(asked) else str(uuid4())
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            await self._answer(scope, receive, send, request_id)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        status = 0
        began = time.perf_counter()

        # Every GET is a HEAD as well: the same headers, and the body stays here.
        is_head = scope["method"] == "HEAD"
        routed: Scope = {**scope, "method": "GET", errors.IS_HEAD: True} if is_head else scope

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            elif is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(routed, receive, send_with_id)
        except ClientDisconnect:
            status = status or _GONE
        except Exception:  # noqa: BLE001 - the edge: it is logged, and answered
            _log.exception("a request failed", path=shown(scope["path"]))
            if not status:
                await errors.error_response(errors.INTERNAL)(scope, receive, send_with_id)
        finally:
            is_probe = scope["path"] in _PROBES and status < HTTPStatus.BAD_REQUEST
            (_log.debug if is_probe else _log.info)(
                "request",
                method=scope["method"],
                path=shown(scope["path"]),
                status=status,
                duration_ms=round((time.perf_counter() - began) * 1000, 1),
            )
