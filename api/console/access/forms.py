"""Forms: what a POST of the console must have, and the public operation that it runs.

A button does what the API does: its request is sent to this very application, in the name of the
session's token, with the Idempotency-Key that is in the form. So a form that is sent twice has one
effect, and permissions, limits, checks and the request log are those of the API.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

from fastapi import Depends, Request
from starlette.types import Message, Scope

from cardledger.api.console import api_path
from cardledger.api.console.access import sessions
from cardledger.api.console.access.context import ConsoleContext, context_of
from cardledger.api.console.mode import ConsoleMode
from cardledger.api.http.authentication import require
from cardledger.api.http.errors import ApiError
from cardledger.api.http.in_flight import HEADER as KEY_HEADER
from cardledger.api.http.middleware import REQUEST_ID, current_request_id
from cardledger.api.http.request_context import public_root
from cardledger.api.http.routing import SESSION_TOKEN, read_body
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.errors import Code

FORM_TOKEN: Final = "form_token"  # noqa: S105 - a name
KEY: Final = "idempotency_key"
KEY_PATTERN: Final = r"^[!-~]{1,255}$"
"""What an Idempotency-Key is made of, as a pattern of a field."""

_MAX_FIELDS: Final = 50
_MAX_BODY: Final = 16 * 1024
_FORM: Final = "application/x-www-form-urlencoded"
_KEY: Final = re.compile(KEY_PATTERN, re.ASCII)
_SUCCESS: Final = 300
_OTHER_SITE: Final = (
    "This form was not sent from a page of this console; open the page and send it."
)
_OTHER_SCHEME: Final = (
    "The console does not know the scheme of the URL that browsers open: set CARDLEDGER_PUBLIC_URL"
    " to that URL, or name the proxy in CARDLEDGER_FORWARDED_ALLOW_IPS, which then has to send"
    " X-Forwarded-Proto."
)

RequestBody = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""JSON that is sent to the API."""


def outdated() -> ApiError:
    """Return the error of a form that is not the one of its page."""
    message = "This form is not the one of its page; reload the page and send it again."
    return ApiError(Code.INVALID_INPUT, message)


def new_key() -> str:
    """Return the Idempotency-Key of a form that is shown now."""
    return f"console-{uuid4()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the API has answered."""

    status: int
    body: Any  # JSON: an object, or a list of network events' outcomes.

    @property
    def is_success(self) -> bool:
        """Whether the operation was carried out."""
        return self.status < _SUCCESS

    @property
    def message(self) -> str:
        """What an error says."""
        return str(self.body.get("message", "")) if isinstance(self.body, Mapping) else ""

    def error(self, names: Mapping[str, str] | None = None) -> ApiError:
        """Return the error that was answered; `names` are fields of the form by those of the API.

        A page of the form is shown again when it is about fields.
        """
        body = self.body if isinstance(self.body, Mapping) else {}
        details = body.get("details") or {}
        errors = [
            {**each, "field": (names or {}).get(each["field"], each["field"])}
            for each in details.get("errors", ())
        ]
        return ApiError(
            Code(body.get("code", Code.INTERNAL_ERROR)),
            self.message,
            details={**details, "errors": errors} if errors else details,
            status=self.status,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A form of the session that may be carried out."""

    call: ConsoleContext
    request: Request
    fields: Mapping[str, str]

    async def run(
        self, method: str, path: str, body: RequestBody | None = None, *, key: str | None = None
    ) -> Answer:
        """Run the operation of the API at `path`, below its base path, and return its answer.

        `key` is its Idempotency-Key: that of the form, unless the form has several requests.
        """
        return await _run(self, method, path, body, key or self.fields[KEY])


async def fields_of(request: Request) -> dict[str, str]:
    """Return the fields of a form, each sent once, after checking where it was sent from.

    Raises: ApiError FORBIDDEN for a form of another site; INVALID_INPUT.
    """
    check_origin(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise ApiError(Code.INVALID_INPUT, f"Send a form as {_FORM}.")
    raw = await read_body(request, _MAX_BODY)
    try:
        pairs = parse_qsl(
            raw.decode(),
            keep_blank_values=True,
            strict_parsing=bool(raw),
            max_num_fields=_MAX_FIELDS,
            errors="strict",
        )
    except ValueError:
        raise ApiError(Code.INVALID_INPUT, "Malformed form; reload the page.") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ApiError(Code.INVALID_INPUT, "A field of the form was sent twice.")
    if any("\x00" in value for value in fields.values()):
        raise ApiError(Code.INVALID_INPUT, "The form has a character that is not allowed: U+0000.")
    return fields


def check_origin(request: Request) -> None:
    """Refuse a form that a page of another site has sent.

    Raises: ApiError FORBIDDEN.
    """
    sent = [each.lower() for each in request.headers.getlist("origin")]
    own = {_origin(public_root(request)), f"{request.url.scheme}://{_host(request)}"}
    if len(sent) != 1 or sent[0] not in own:
        # A page of the same host: a proxy has TLS, and the settings say nothing of it.
        is_of_host = [each.partition("://")[2] for each in sent] == [_host(request)]
        message = _OTHER_SCHEME if is_of_host else _OTHER_SITE
        raise ApiError(Code.FORBIDDEN, message, details={"header": "Origin"})


def _host(request: Request) -> str:
    # A page of another site has another host in both headers, which browsers set.
    return request.headers.get("host", "").lower()


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def acting(permission: Permission) -> Callable[[Request], Awaitable[Action]]:
    """Return the dependency of a POST that needs `permission`.

    It checks origin, session, permission, mode, form token and key.
    """

    async def checked(request: Request) -> Action:
        check_origin(request)
        call = await context_of(request)
        require(call.token, permission)
        if call.console.mode is not ConsoleMode.ACT:
            message = "This console only shows: CARDLEDGER_CONSOLE=act lets it act."
            raise ApiError(Code.FORBIDDEN, message)
        fields = request.state.fields = await fields_of(request)
        if not sessions.is_form_token(fields.pop(FORM_TOKEN, ""), call.session, call.keys):
            message = "This form belongs to another session; reload the page and send it again."
            raise ApiError(Code.FORBIDDEN, message)
        if not _KEY.fullmatch(fields.get(KEY, "")):
            raise outdated()
        return Action(call=call, request=request, fields=fields)

    return checked


Transacting = Annotated[Action, Depends(acting(Permission.TRANSACT))]
"""Type of the parameter of a POST that moves money or simulates."""

Managing = Annotated[Action, Depends(acting(Permission.MANAGE))]
"""Type of the parameter of a POST that changes cards, endpoints or customers."""


async def _run(
    action: Action, method: str, path: str, body: RequestBody | None, key: str
) -> Answer:
    content = b"" if body is None else json.dumps(body).encode()
    sent, received = [content], bytearray()
    status = 0
    ended = asyncio.Event()

    async def receive() -> Message:
        if sent:
            return {"type": "http.request", "body": sent.pop(), "more_body": False}
        await ended.wait()  # A stream of outcomes would end with the caller's connection.
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            received.extend(message.get("body", b""))

    try:
        await action.request.app(_scope(action, method, path, content, key), receive, send)
    finally:
        ended.set()
    return Answer(status=status, body=json.loads(received) if received else {})


def _scope(action: Action, method: str, path: str, content: bytes, key: str) -> Scope:
    outer = action.request.scope
    headers = [
        (b"host", action.request.headers.get("host", "").encode("latin-1")),
        (b"content-length", str(len(content)).encode()),
        (KEY_HEADER.lower().encode(), key.encode()),
        # One id for both: what a page shows finds the log of the operation, too.
        (REQUEST_ID.lower().encode(), current_request_id().encode()),
    ]
    if content:
        headers.append((b"content-type", b"application/json"))
    route, _, query = api_path(path).partition("?")
    return {
        "type": "http",
        "asgi": outer["asgi"],
        "http_version": outer["http_version"],
        "method": method,
        "scheme": outer["scheme"],
        "path": route,
        "raw_path": route.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": outer["client"],
        "server": outer["server"],
        "state": {},
        SESSION_TOKEN: action.call.proven,
    }
