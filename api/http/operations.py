"""Declarations of operations: who may call them, and which errors only they return.

The OpenAPI document is made of these declarations (`cardledger.api.openapi.document`); errors that
all operations share are added there.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute

from cardledger.api.fair_slots import Work
from cardledger.api.http.idempotency import Prepare, Sender
from cardledger.api.http.request_context import RequestContext
from cardledger.schema.wire.common import Response as Resource
from cardledger.schema.wire.error_specs import STATUS
from cardledger.schema.wire.errors import Code

CODES: Final = "x-codes"
UNIMPLEMENTED: Final = "x-unimplemented"

BASIC: Final = "BasicAuth"
AGENT: Final = "AgentAuth"

OpenApiResponses = dict[int | str, dict[str, Any]]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Awaitable[Response]])


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStream:
    """The body of an operation that takes many events and returns a result for each.

    Both are one `item` a line, or an array of them; without waiting the response is `accepted`.
    """

    item: Any  # A type: a union of models is not a class.
    accepted: type[Resource]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The body of an operation that takes a form with a file (`multipart/form-data`).

    `receive` returns the request whose body is read as JSON from there on; until its end the form
    counts as in progress. A body has at most `max_body` bytes.
    """

    receive: Callable[[Request], AbstractAsyncContextManager[Request]]
    max_body: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may call an operation.

    `admit` authenticates the caller or raises. `send` sends the operation's event, where the
    effect of the operation is an event: it may be sent again. An operation that `waits` writes rows
    and then waits until a worker has decided what they say. `secrets` are the fields of its
    response, by paths such as `deviceCode.code`, that a repetition does not return, and `large`
    those that it does not return because they are not worth the disk: GET shows them. An endpoint
    with a `stream` reads the body and takes its slot itself, and has no idempotency key. `work` is
    what a request does in its slot, if it is not what follows from the others. The query
    parameters in `lists` may be sent several times. With a `form` the body is a form instead of
    JSON. `prepare` asks systems outside before the database transaction of the request begins, and
    keeps in the context of the request what was answered.
    """

    admit: Callable[[Request], Awaitable[RequestContext]]
    scheme: str | None = None
    permissions: Sequence[str] = ()
    prepare: Prepare | None = None
    send: Sender | None = None
    waits: bool = False
    work: Work | None = None
    secrets: Sequence[str] = ()
    large: Sequence[str] = ()
    stream: EventStream | None = None
    lists: Sequence[str] = ()
    form: Form | None = None


_ACCESS: Final[dict[Callable[..., object], Access]] = {}


def declare(access: Access) -> Callable[[Endpoint], Endpoint]:
    """Return a decorator that declares `access` for an endpoint; the route goes above it."""

    def declared(endpoint: Endpoint) -> Endpoint:
        _ACCESS[endpoint] = access
        return endpoint

    return declared


Handle = Callable[[Request], Coroutine[Any, Any, Response]]
"""Handles a request, from its admission to its response; raises what becomes an error response."""


class Guarded(APIRoute):
    """A route whose endpoint declares its access; `direct` handles it without FastAPI, if set."""

    direct: Handle | None = None

    @property
    def access(self) -> Access:
        """What the endpoint declares."""
        assert self.endpoint in _ACCESS, f"declare who may call {self.name}"
        return _ACCESS[self.endpoint]

    @property
    def scheme(self) -> str | None:
        """The authentication scheme, if there is one."""
        return self.access.scheme

    @property
    def needs(self) -> Sequence[str]:
        """The permissions that callers must have."""
        return self.access.permissions


def error_responses(*codes: Code, implemented: bool = True) -> OpenApiResponses:
    """Return the `responses` of a route: the errors that only this route returns.

    Without `implemented`, the route never succeeds.
    """
    responses: OpenApiResponses = {}
    for code in codes:
        empty = {"description": "", CODES: [], UNIMPLEMENTED: not implemented}
        responses.setdefault(STATUS[code], empty)[CODES].append(code)
    return responses


ACCEPTED: Final = 202
_ALSO: Final = "x-also"


def also(status: int) -> OpenApiResponses:
    """Return the part of `responses` that says: the same result also comes with `status`."""
    return {status: {"description": "", _ALSO: True}}


def also_in(responses: Mapping[int | str, Mapping[str, Any]]) -> list[int]:
    """Return the statuses that `also` was called with."""
    return [int(status) for status, response in responses.items() if response.get(_ALSO)]


def codes_in(responses: Mapping[int | str, Mapping[str, Any]]) -> dict[int, list[Code]]:
    """Return the codes that `error_responses` was called with, by status."""
    return {
        int(status): list(response[CODES])
        for status, response in responses.items()
        if CODES in response
    }


def ever_succeeds(responses: Mapping[int | str, Mapping[str, Any]]) -> bool:
    """Return whether a route with these `responses` is implemented."""
    return not any(response.get(UNIMPLEMENTED) for response in responses.values())
