"""Refusals: every error leaves in one envelope, with a message that says what to change."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from cardledger.ledger.ports import NotConnectedError
from cardledger.schema.wire.error_specs import STATUS
from cardledger.schema.wire.errors import (
    Code,
    ErrorBody,
    FieldError,
    field_errors,
    sentence,
)
from cardledger.workers.client import ReplyTimeoutError, UnavailableError

RETRY_AFTER_S: Final = 1
TOO_LARGE: Final = 413
TOO_SLOW: Final = 408

_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"WWW-Authenticate": 'Basic realm="api", charset="UTF-8"'},
    # The public clients repeat a 409 twice unless they are told that it is no use.
    409: {"x-should-retry": "false"},
    # They also repeat every 5xx, and nothing gets built between two requests.
    501: {"x-should-retry": "false"},
    503: {"Retry-After": str(RETRY_AFTER_S)},
}

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

NOT_FOUND: Final[Mapping[str, Code]] = {
    "customer_id": Code.USER_NOT_FOUND,
    "token_id": Code.TOKEN_NOT_FOUND,
    "transaction_id": Code.TRANSACTION_NOT_FOUND,
}
"""Code of an id in the path that nothing has; every other is `REFERENCE_NOT_FOUND`."""

_log = structlog.get_logger()


class ApiError(Exception):
    """An answer that is a refusal; `status` is that of the code unless said otherwise."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code: Final = code
        self.message: Final = message
        self.details: Final = details
        self.headers: Final = headers or {}
        self.status: Final = status or STATUS[code]


def invalid(errors: Sequence[FieldError], code: Code = Code.INVALID_INPUT) -> ApiError:
    """Return the refusal of an input whose `errors` have to be mended."""
    return ApiError(code, sentence(errors), details={"errors": [error.wire() for error in errors]})


def invalid_field(field: str, message: str, code: Code = Code.INVALID_INPUT) -> ApiError:
    """Return the refusal of an input in which one field has to change."""
    return invalid([FieldError(field=field, message=message)], code)


def not_found(code: Code, what: str) -> ApiError:
    """Return the refusal of an id that the caller's platform does not have."""
    return ApiError(code, f"there is no {what} with this id; check the id and whose token it is")


def answer_to(error: ApiError) -> Response:
    """Return `error` as it is sent."""
    body = ErrorBody(
        status=error.status,
        code=error.code,
        message=error.message,
        details=None if error.details is None else dict(error.details),
    )
    return Response(
        json.dumps(body.wire()),
        status_code=error.status,
        headers={**_HEADERS.get(error.status, {}), **error.headers},
        media_type="application/json",
    )


INTERNAL: Final = ApiError(
    Code.INTERNAL_ERROR,
    "something went wrong here, not with the request; quote X-Request-Id when you report it",
)


def unavailable(message: str, headers: Mapping[str, str] | None = None) -> ApiError:
    """Return the refusal to say anything now."""
    return ApiError(Code.SERVICE_UNAVAILABLE, message, headers=headers)


def install(app: FastAPI) -> None:
    """Make every way to fail end in the envelope."""
    for raised in (OperationalError, InterfaceError, PoolTimeoutError, psycopg.OperationalError):
        app.add_exception_handler(raised, _database_is_away)
    app.add_exception_handler(UnavailableError, _database_is_away)
    app.add_exception_handler(ReplyTimeoutError, _no_reply)
    app.add_exception_handler(NotConnectedError, _not_connected)
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _not_routed)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return answer_to(error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    complaints = error.errors()
    for complaint in complaints:
        # Nothing can have an id that is none, so this is about the resource, not about the form.
        if complaint["loc"][0] == "path":
            if request.method not in _methods(request):
                return _no_such_method(request)
            code = NOT_FOUND.get(str(complaint["loc"][1]), Code.REFERENCE_NOT_FOUND)
            message = field_errors([complaint])[0].message
            return answer_to(ApiError(code, f"there is nothing with this id: an id {message}"))
    return answer_to(invalid(field_errors([{**one, "loc": one["loc"][1:]} for one in complaints])))


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            message = "there is no such path; check the path and the version in it"
            return answer_to(ApiError(Code.REFERENCE_NOT_FOUND, message))
        case 405:
            return _no_such_method(request)
        case _:
            return answer_to(ApiError(Code.INVALID_INPUT, str(error.detail)))


def _no_such_method(request: Request) -> Response:
    allowed = ", ".join(_methods(request))
    message = f"{request.method} is not possible here; use {allowed}"
    return answer_to(ApiError(Code.METHOD_NOT_ALLOWED, message, headers={"Allow": allowed}))


def _methods(request: Request) -> list[str]:
    """Return what the path can do; Starlette names only what its first route can.

    Where an operation has the very path, those that would take the end of it for an id do not
    count.
    """
    routes = iter_route_contexts(request.app.routes)
    exact = [route.methods or () for route in routes if route.path == request.scope["path"]]
    if exact:
        return [method for method in _METHODS if any(method in methods for methods in exact)]
    return [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


async def _not_connected(_request: Request, error: Exception) -> Response:
    return answer_to(ApiError(Code.NOT_IMPLEMENTED, str(error)))


async def _database_is_away(_request: Request, error: Exception) -> Response:
    _log.warning("PostgreSQL is away", error=_cause(error))
    return answer_to(unavailable("the database does not answer; try again in a moment"))


def _cause(error: Exception) -> str:
    """Return what PostgreSQL or the driver said, without the statement and its parameters."""
    said = getattr(error, "orig", None) or error
    # The details of a server's message can hold rows, which are about people.
    primary = said.diag.message_primary if isinstance(said, psycopg.Error) else None
    return primary or str(said).strip()


async def _no_reply(_request: Request, error: Exception) -> Response:
    _log.warning("no outcome in time", error=str(error))
    message = (
        "the message was accepted and not decided in time; its effect will show in"
        " GET /transactions, so do not send it again before you have looked"
    )
    # A repetition would be another message: the network has no way to know that it is the same.
    return answer_to(unavailable(message, {"x-should-retry": "false"}))
