"""Routes that know who calls before they look at what was sent.

In this order: credentials (401), rate limit (429), permission (403), the idempotency key and the
body as such (400, 408, 413), what was answered to that key before, then what FastAPI makes of path,
query and body, then the route. So nobody without a token learns anything.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from email.message import Message
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from typing_extensions import override

from cardledger.api.http import idempotency, json_body
from cardledger.api.http.authentication import require, require_of_agent
from cardledger.api.http.errors import TOO_LARGE, TOO_SLOW, ApiError, invalid, invalid_field
from cardledger.api.http.operations import AGENT, BASIC, Guarded
from cardledger.api.http.rate_limits import address_of
from cardledger.api.http.request_context import AgentCall, AnyCall, Call, services_of
from cardledger.ledger.agents.policy import AgentPermission
from cardledger.ledger.agents.registry import Agent
from cardledger.ledger.platforms.api_tokens import Permission, Token
from cardledger.schema.wire.errors import Code, FieldError, dotted

MAX_BODY: Final = 1024 * 1024

REQUESTS: Final = "requests"
"""The limit on requests of one token."""

SANDBOX: Final = "Sandbox"
"""Tag of what only a sandbox has."""


def routes(
    permission: Permission, *, tag: str, send: idempotency.Sender | None = None
) -> APIRouter:
    """Return a router whose routes need `permission`.

    `send` sends an event a second time: for routes whose effects are events.
    """

    async def admit(request: Request) -> Call:
        token = await token_of(request)
        require(token, permission)
        return Call(services=services_of(request), token=token)

    guarded = guarded_by(admit, send)
    guarded.scheme, guarded.needs = BASIC, (permission.value,)
    return APIRouter(route_class=guarded, tags=[tag])


def agent_routes(
    permission: AgentPermission | None,
    *,
    tag: str,
    writes: bool = False,
    send: idempotency.Sender | None = None,
) -> APIRouter:
    """Return a router whose routes an agent calls; its policy has to grant `permission`.

    A paused agent is refused where it `writes`. `send` as in `routes`.
    """

    async def admit(request: Request) -> AgentCall:
        agent = await agent_of(request)
        require_of_agent(agent, permission, writes=writes)
        return AgentCall(services=services_of(request), agent=agent)

    guarded = guarded_by(admit, send)
    guarded.scheme, guarded.needs = AGENT, (permission.value,) if permission else ()
    return APIRouter(route_class=guarded, tags=[tag])


def guarded_by(
    admit: Callable[[Request], Awaitable[AnyCall]], send: idempotency.Sender | None
) -> type[Guarded]:
    """Return the class of routes that `admit` lets in before they look at what was sent.

    `admit` says who calls, or refuses.
    """

    class GuardedRoute(Guarded):
        @override
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()
            takes_body = self.body_field is not None

            async def guarded(request: Request) -> Response:
                request.state.call = await admit(request)
                key = idempotency.key_of(request)
                _refuse_repeated_parameters(request)
                # A POST without a body of its own is read all the same: a field that it does not
                # know is refused, not ignored.
                reads_body = takes_body or request.method == "POST"
                parsed = await _parsed(request) if reads_body else request
                if not takes_body and reads_body:
                    _require_empty(await parsed.json())
                if key is None:
                    return await handle(parsed)
                body = await parsed.json() if takes_body else None
                return await idempotency.answer(parsed, key, body, handle=handle, send=send)

            return guarded

    return GuardedRoute


async def token_of(request: Request) -> Token:
    """Return the token that calls, unless it calls too often.

    Raises: ApiError UNAUTHORIZED; RATE_LIMITED.
    """
    services = services_of(request)
    authorization = request.headers.getlist("authorization")
    token = await services.authenticator.token(authorization, address=address_of(request))
    services.limits.admit(REQUESTS, str(token.id))
    return token


async def agent_of(request: Request) -> Agent:
    """Return the agent that calls, unless it calls too often.

    Raises: ApiError UNAUTHORIZED; RATE_LIMITED.
    """
    services = services_of(request)
    authorization = request.headers.getlist("authorization")
    agent = await services.authenticator.agent(authorization, address=address_of(request))
    services.limits.admit(REQUESTS, str(agent.id))
    return agent


class _ParsedRequest(Request):
    """A request whose body has been read and understood; FastAPI asks it for both."""

    def __init__(self, request: Request, raw: bytes, value: object) -> None:
        super().__init__(request.scope, request.receive)
        self._raw: Final = raw
        self._value: Final = value

    @override
    async def body(self) -> bytes:
        return self._raw

    @override
    async def json(self) -> Any:
        return self._value


async def _parsed(request: Request) -> Request:
    raw = await _read(request)
    if not raw.strip():
        return _ParsedRequest(request, b"", None)  # FastAPI says what is missing, if anything is.
    _check_content_type(request)
    try:
        return _ParsedRequest(request, raw, json_body.parse(raw))
    except json_body.JsonError as error:
        raise invalid_field(error.field, str(error)) from None


async def _read(request: Request) -> bytes:
    """Return the body, without ever holding more than we would take, or waiting for ever."""
    patience_s = services_of(request).body_timeout_s
    try:
        async with asyncio.timeout(patience_s):
            return await _all_of(request)
    except TimeoutError:
        message = f"the body did not come to its end within {patience_s:g} s; send it again"
        headers = {"Connection": "close"}
        raise ApiError(Code.INVALID_INPUT, message, status=TOO_SLOW, headers=headers) from None


async def _all_of(request: Request) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and len(declared) <= len(str(MAX_BODY)) and int(declared) <= MAX_BODY:
        raw = bytearray()
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > MAX_BODY:
                break
        else:
            return bytes(raw)
    message = f"the body is too large; send at most {MAX_BODY} bytes"
    # What is left of the body is not read, so the connection cannot be used again.
    raise ApiError(Code.INVALID_INPUT, message, status=TOO_LARGE, headers={"Connection": "close"})


def _require_empty(body: object) -> None:
    """Refuse the `body` of an operation that has no fields, unless it is empty or `{}`.

    Raises: ApiError INVALID_INPUT naming every field.
    """
    if body is None:
        return
    if not isinstance(body, dict):
        raise invalid_field("", "must be an object")
    if body:
        message = "is not a known field; remove it"
        raise invalid([FieldError(field=dotted([name]), message=message) for name in body])


def _check_content_type(request: Request) -> None:
    sent = request.headers.getlist("content-type")
    if sent == ["application/json"]:
        return  # As nearly everybody says it.
    if len(sent) == 1:
        parsed = Message()
        parsed["content-type"] = sent[0]
        charset = parsed.get_param("charset", "utf-8")
        if parsed.get_content_type() == "application/json" and str(charset).lower() == "utf-8":
            return
    message = "send the header Content-Type: application/json, once"
    raise ApiError(Code.INVALID_INPUT, message, details={"header": "Content-Type"})


def _refuse_repeated_parameters(request: Request) -> None:
    if not request.scope["query_string"]:
        return
    counted = Counter(name for name, _ in request.query_params.multi_items())
    for name, times in counted.items():
        if times > 1:
            raise invalid_field(name, "comes twice in the query; send it once")
