"""Routes that authenticate the caller before they read anything else.

In this order: credentials (401), rate limit (429), permission (403), idempotency key and body
(400, 408, 413), the turn of a large one (429), a slot (429), the stored response to that key,
then FastAPI's checks of path, query and body, then the endpoint. A form takes a slot (429), checks
the room for its file (404, 409) and gives the slot back, before its body is received. So a caller
without credentials learns nothing about resources.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from email.message import Message
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from typing_extensions import override

from cardledger.api import BASE_PATH
from cardledger.api.fair_slots import Work
from cardledger.api.http import idempotency, json_body
from cardledger.api.http.arguments import Arguments
from cardledger.api.http.authentication import AGENT_REQUESTS, require, require_of_agent
from cardledger.api.http.errors import (
    MAX_ERRORS,
    TOO_LARGE,
    TOO_SLOW,
    ApiError,
    invalid,
    invalid_field,
)
from cardledger.api.http.in_flight import Turn
from cardledger.api.http.operations import (
    AGENT,
    BASIC,
    Access,
    Endpoint,
    EventStream,
    Form,
    Guarded,
    Handle,
    declare,
)
from cardledger.api.http.rate_limits import address_of
from cardledger.api.http.request_context import (
    AgentContext,
    PlatformContext,
    RequestContext,
    services_of,
)
from cardledger.ledger.agents.policy import AgentPermission
from cardledger.ledger.agents.registry import Agent
from cardledger.ledger.platforms.api_tokens import ProvenToken
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.errors import Code, FieldError, dotted

MAX_BODY: Final = 64 * 1024
"""Bytes of a body, except of files and of many events, which have limits of their own."""

LARGE_BODY: Final = 8 * 1024
LARGE_QUERY: Final = 1024
"""Bytes above which a platform has one request processed at a time; usual ones are far smaller."""

LARGE_PAUSE_S: Final = 0.02
"""How long the next one of the platform waits after it."""

_LENGTH_DIGITS: Final = 18

_STACKS: Final = (
    "fastapi_middleware_astack",
    "fastapi_inner_astack",
    "fastapi_function_astack",
)

SESSION_TOKEN: Final = "cardledger.session_token"  # noqa: S105 - a name
"""Key of the ASGI scope: the token of a session, in whose name this process calls itself."""

_MAX_CONTENT_TYPE: Final = 255  # The time to parse it grows with the square of its length.

REQUESTS: Final = "requests"
"""The limit on requests of one platform, with all of its tokens."""

SANDBOX: Final = "Sandbox"
"""Tag of operations that exist in the sandbox only."""


def requires(  # noqa: PLR0913 - what an operation declares
    *permissions: Permission,
    send: idempotency.Sender | None = None,
    waits: bool = False,
    work: Work | None = None,
    secrets: Sequence[str] = (),
    large: Sequence[str] = (),
    stream: EventStream | None = None,
    lists: Sequence[str] = (),
    form: Form | None = None,
    prepare: idempotency.Prepare | None = None,
) -> Callable[[Endpoint], Endpoint]:
    """Declare that platforms call an endpoint, with a token that has all `permissions`.

    `send` is for endpoints whose effect is an event, `waits` for those that wait for a worker
    besides, `work` for those whose event no worker decides, `secrets` for those that return
    secrets, `large` for those that return what is too large to be stored with each key, `stream`
    for those that take many events, `lists` for query parameters that may be sent several times,
    `form` for those that take a file, `prepare` for those that ask systems outside: see
    `operations.Access`.
    """

    async def admit(request: Request) -> PlatformContext:
        proven = await token_of(request)
        for permission in permissions:
            require(proven.token, permission)
        return PlatformContext(services=services_of(request), proven=proven)

    needs = tuple(permission.value for permission in permissions)
    return declare(
        Access(
            admit=admit,
            scheme=BASIC,
            permissions=needs,
            send=send,
            waits=waits,
            work=work,
            secrets=secrets,
            large=large,
            stream=stream,
            lists=lists,
            form=form,
            prepare=prepare,
        )
    )


def requires_agent(
    permission: AgentPermission | None,
    *,
    writes: bool = False,
    waits: bool = False,
    prepare: idempotency.Prepare | None = None,
) -> Callable[[Endpoint], Endpoint]:
    """Declare that agents call an endpoint, under a policy that grants `permission`, if given.

    A paused agent is refused where the endpoint `writes`; `waits` is as in `requires`.
    """

    async def admit(request: Request) -> AgentContext:
        agent = await agent_of(request)
        require_of_agent(agent, permission, writes=writes)
        return AgentContext(services=services_of(request), agent=agent)

    permissions = (permission.value,) if permission else ()
    return declare(
        Access(admit=admit, scheme=AGENT, permissions=permissions, waits=waits, prepare=prepare)
    )


def guarded_router(tag: str, *, prefix: str = BASE_PATH) -> APIRouter:
    """Return a router for endpoints below `prefix` that declare who may call them."""
    return APIRouter(
        route_class=_GuardedRoute,
        tags=[tag],
        prefix=prefix,
        generate_unique_id_function=operation_id,
    )


def public_router(tag: str) -> APIRouter:
    """Return a router for endpoints that everyone may call, with their full paths."""
    return APIRouter(tags=[tag], generate_unique_id_function=operation_id)


def operation_id(route: APIRoute) -> str:
    """Return `createCard` for `create_card`: generated clients use operation ids as names."""
    first, *rest = route.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class _GuardedRoute(Guarded):
    @override
    def get_route_handler(self) -> Handle:
        arguments = Arguments.of(self.endpoint, self.path)
        handle = _at_once(arguments, self.endpoint, super().get_route_handler())
        access = self.access
        takes_body = self.body_field is not None
        work = _work_of(self)

        async def guarded(request: Request) -> Response:
            request.state.call = await access.admit(request)
            if access.stream is not None:
                _refuse_repeated_parameters(request, access.lists)
                return await handle(request)
            key = idempotency.key_of(request)
            _refuse_repeated_parameters(request, access.lists)
            # In the slot the client has sent everything: from there on the time is the server's.
            if access.form is None:
                raw = await _received(request, takes_body=takes_body)
                if _is_large(request, raw):
                    async with _turn_of_large(request):
                        return await answer(request, raw, key)
                return await answer(request, raw, key)
            async with access.form.receive(request) as parsed, slot_of(request, work):
                return await respond(parsed, key)

        async def answer(request: Request, raw: bytes | None, key: str | None) -> Response:
            parsed = request if raw is None else _parsed(request, raw, takes_body=takes_body)
            async with slot_of(request, work):
                return await respond(parsed, key)

        async def respond(parsed: Request, key: str | None) -> Response:
            body = await parsed.json() if takes_body else None
            if key is None:
                if access.prepare is not None:
                    await access.prepare(parsed.state.call, body, parsed.path_params)
                return await handle(parsed)
            return await idempotency.respond(
                parsed,
                key,
                body,
                handle=handle,
                send=access.send,
                unstored=(*access.secrets, *access.large),
                prepare=access.prepare,
            )

        if arguments is not None and access.stream is None and access.form is None:
            self.direct = guarded
        return guarded


def _work_of(route: Guarded) -> Work:
    """Return what requests of `route` do while they have their slots."""
    if route.methods == {"GET"}:
        return Work.READ
    access = route.access
    if access.work is not None:
        return access.work
    return Work.EVENT if access.waits or access.send is not None else Work.WRITE


def _at_once(arguments: Arguments | None, endpoint: Endpoint, handle: Handle) -> Handle:
    """Return `handle`, which does not validate again what is valid as it is."""
    if arguments is None:
        return handle

    async def handled(request: Request) -> Response:
        body = await request.json() if arguments.body else None
        values = arguments.validated(request, body)
        return await in_general(request) if values is None else await endpoint(**values)

    async def in_general(request: Request) -> Response:
        async with AsyncExitStack() as stack:
            for name in _STACKS:  # Of a request that did not come through FastAPI's layers.
                request.scope.setdefault(name, stack)
            return await handle(request)

    return handled


async def _received(request: Request, *, takes_body: bool) -> bytes | None:
    """Return the body of `request`; None where it is not read."""
    # A POST without a body of its own is read as well: unknown fields are refused.
    if not takes_body and request.method != "POST":
        return None
    try:
        return await read_body(request)
    except ApiError as error:
        if error.status != TOO_LARGE:
            raise
        async with _turn_of_large(request):
            raise


def _is_large(request: Request, raw: bytes | None) -> bool:
    return len(raw or b"") > LARGE_BODY or len(request.scope["query_string"]) > LARGE_QUERY


@asynccontextmanager
async def _turn_of_large(request: Request) -> AsyncIterator[None]:
    """Have the block process a large request, one at a time of a platform, with a pause after it.

    It takes the event loop for milliseconds, mostly to say what is wrong with it. So as many as a
    platform can send would take it from the requests of others.
    Raises: ApiError RATE_LIMITED when too many wait.
    """
    call: RequestContext = request.state.call
    turn = Turn(f"large requests of {call.platform_id} {call.kind}", 1)
    async with call.services.turns.take(turn):
        try:
            yield
        finally:
            await asyncio.sleep(LARGE_PAUSE_S)


def slot_of(request: Request, work: Work) -> AbstractAsyncContextManager[None]:
    """Return the slot in which `request`, whose body has arrived, does `work`."""
    call: RequestContext = request.state.call
    return call.services.slots.take(call.platform_id, call.kind, work)


async def token_of(request: Request) -> ProvenToken:
    """Return the token of the caller, and count the request against its platform's rate limit.

    Raises: ApiError UNAUTHORIZED; RATE_LIMITED.
    """
    services = services_of(request)
    proven: ProvenToken | None = request.scope.get(SESSION_TOKEN)
    if proven is None:
        authorization = request.headers.getlist("authorization")
        proven = await services.authenticator.proven(authorization, address=address_of(request))
    services.limits.admit(REQUESTS, str(proven.token.platform_id))
    return proven


async def agent_of(request: Request) -> Agent:
    """Return the agent that calls, and count the request against the limit of all agents.

    Raises: ApiError UNAUTHORIZED; RATE_LIMITED.
    """
    services = services_of(request)
    authorization = request.headers.getlist("authorization")
    agent = await services.authenticator.agent(authorization, address=address_of(request))
    services.limits.admit(AGENT_REQUESTS, str(agent.platform_id))
    return agent


class ParsedRequest(Request):
    """A request whose body has been read and parsed; FastAPI reads both from it."""

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


def _parsed(request: Request, raw: bytes, *, takes_body: bool) -> Request:
    """Return `request` with its body `raw`, parsed; it is empty where none is taken."""
    if not raw.strip():
        return ParsedRequest(request, b"", None)  # FastAPI reports missing fields.
    _check_content_type(request)
    try:
        value = json_body.parse(raw)
    except json_body.JsonError as error:
        raise invalid_field(error.field, str(error)) from None
    if not takes_body:
        _require_empty(value)
    return ParsedRequest(request, raw, value)


async def read_body(
    request: Request, limit: int = MAX_BODY, *, on_large: Callable[[], None] = lambda: None
) -> bytes:
    """Return the body of `request`, of at most `limit` bytes, within the limit of time.

    Calls `on_large` once more than `MAX_BODY` bytes have arrived. Raises: ApiError INVALID_INPUT.
    """
    timeout_s = services_of(request).body_timeout_s
    try:
        async with asyncio.timeout(timeout_s):
            return await _whole_body(request, limit, on_large)
    except TimeoutError:
        raise _body_timed_out(timeout_s) from None


async def _whole_body(request: Request, limit: int, on_large: Callable[[], None]) -> bytes:
    declared = declared_length(request)
    if declared is None or declared <= limit:
        raw = bytearray()
        async for chunk in request.stream():
            if len(raw) <= MAX_BODY < len(raw) + len(chunk):
                on_large()
            raw += chunk
            if len(raw) > limit:
                break
        else:
            return bytes(raw)
    raise too_large(limit)


def too_large(limit: int) -> ApiError:
    """Return the error of a body of more than `limit` bytes."""
    message = f"Request body too large; send at most {limit} bytes."
    # The rest of the body stays unread, so the connection cannot be used again.
    return ApiError(Code.INVALID_INPUT, message, status=TOO_LARGE, headers={"Connection": "close"})


async def arriving(request: Request) -> AsyncIterator[bytes]:
    """Yield the body of `request` as it arrives, within the limit of time.

    What is done with it meanwhile takes the time of this process, not that of the client.
    Raises: ApiError INVALID_INPUT.
    """
    chunks, waited_s = request.stream(), 0.0
    timeout_s = services_of(request).body_timeout_s
    while True:
        begin = time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, timeout_s - waited_s)):
                chunk = await anext(chunks, None)
        except TimeoutError:
            raise _body_timed_out(timeout_s) from None
        if chunk is None:
            return
        waited_s += time.monotonic() - begin
        yield chunk


def _body_timed_out(timeout_s: float) -> ApiError:
    message = f"Request body timed out after {timeout_s:g} s."
    headers = {"Connection": "close"}
    return ApiError(Code.INVALID_INPUT, message, status=TOO_SLOW, headers=headers)


def declared_length(request: Request) -> int | None:
    """Return how many bytes the body has, as its head says; None when the head does not say."""
    declared = request.headers.get("content-length", "")
    if not declared.isdecimal():
        return None
    return int(declared[:_LENGTH_DIGITS])  # Too large in any case when it has more digits.


def _require_empty(body: object) -> None:
    """Refuse the `body` of an operation that has no fields, unless it is empty or `{}`.

    Raises: ApiError INVALID_INPUT naming the fields.
    """
    if body is None:
        return
    if not isinstance(body, dict):
        raise invalid_field("", "must be an object")
    if body:
        message = "is not a known field; remove it"
        first = [FieldError(field=dotted([name]), message=message) for name in [*body][:MAX_ERRORS]]
        raise invalid(first, count=len(body))


def _check_content_type(request: Request) -> None:
    values = request.headers.getlist("content-type")
    if values == ["application/json"]:
        return  # The usual form, without parsing.
    if len(values) == 1 and len(values[0]) <= _MAX_CONTENT_TYPE:
        parsed = Message()
        parsed["content-type"] = values[0]
        charset = parsed.get_param("charset", "utf-8")
        if parsed.get_content_type() == "application/json" and str(charset).lower() == "utf-8":
            return
    message = "Unsupported content type; send the header Content-Type: application/json once."
    raise ApiError(Code.INVALID_INPUT, message, details={"header": "Content-Type"})


def _refuse_repeated_parameters(request: Request, lists: Sequence[str] = ()) -> None:
    if not request.scope["query_string"]:
        return
    counts = Counter(name for name, _ in request.query_params.multi_items())
    repeated = [name for name, count in counts.items() if count > 1 and name not in lists]
    if repeated:
        message = "is a duplicate query parameter; send it once"
        raise invalid([FieldError(field=dotted([name]), message=message) for name in repeated])
