"""Error responses: one envelope, with a message that says what is wrong and what to change."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from cardledger.api.fair_slots import TooManyInProgressError
from cardledger.api.ingestion_limits import TooManyEventsError
from cardledger.ledger.platforms import quotas
from cardledger.ledger.ports import NotConnectedError
from cardledger.ledger.storage.engines import UNAVAILABLE_ERRORS, is_cancelled
from cardledger.schema.wire.error_specs import STATUS
from cardledger.schema.wire.errors import (
    Code,
    ErrorBody,
    FieldError,
    field_errors,
    sentence,
    shortened,
)
from cardledger.workers.client import OverloadedError, ReplyTimeoutError, UnavailableError
from cardledger.workers.metrics import counted
from cardledger.workers.signals import database_failures

RETRY_AFTER_S: Final = 1
TOO_LARGE: Final = 413
TOO_SLOW: Final = 408
HEAD_TOO_LARGE: Final = 431

MAX_ERRORS: Final = 20
"""Invalid fields that an error lists; it says how many more there are."""

MAX_ERROR_BODY: Final = 16 * 1024
"""Bytes of the body of an error, whatever the request was."""

_ERRORS_SIZE: Final = 10 * 1024
_MAX_MESSAGE: Final = 400  # Characters; JSON has at most 12 bytes for each.

IS_HEAD: Final = "cardledger.is_head"
"""Key of the ASGI scope: the request is a HEAD request, routed as GET."""

_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"WWW-Authenticate": 'Basic realm="api", charset="UTF-8"'},
    # The public clients retry a 409 twice unless this header forbids it.
    409: {"x-should-retry": "false"},
    # They also retry every 5xx, and a 501 stays a 501.
    501: {"x-should-retry": "false"},
    503: {"Retry-After": str(RETRY_AFTER_S)},
}

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

NOT_FOUND: Final[Mapping[str, Code]] = {
    "customer_id": Code.USER_NOT_FOUND,
    "job_id": Code.BULK_UPLOAD_JOB_NOT_FOUND,
    "token_id": Code.TOKEN_NOT_FOUND,
    "transaction_id": Code.TRANSACTION_NOT_FOUND,
    "quote_id": Code.QUOTE_NOT_FOUND,
    "receiver_uma_address": Code.UMA_NOT_FOUND,
}
"""Code of an unknown id by path parameter; every other is `REFERENCE_NOT_FOUND`."""

_TOO_SLOW_READ: Final = (
    "The request took too long in the database; read less at a time, with filters or a smaller"
    " limit, or retry in a moment."
)

_log = structlog.get_logger()


class ApiError(Exception):
    """An error response; `status` is that of the code unless it is given."""

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
        self.message: Final = shortened(message, _MAX_MESSAGE)
        self.details: Final = details
        self.headers: Final = headers or {}
        self.status: Final = status or STATUS[code]


def invalid(
    errors: Sequence[FieldError], code: Code = Code.INVALID_INPUT, *, count: int | None = None
) -> ApiError:
    """Return the error of an input that is invalid because of `errors`; it lists the first.

    `count` is the number of errors where `errors` are only some of them.
    """
    listed = list(_listed(errors))
    more = (count or len(errors)) - len(listed)
    details = {"errors": listed} | ({"moreErrors": more} if more else {})
    return ApiError(code, sentence(errors, count), details=details)


def _listed(errors: Sequence[FieldError]) -> Iterator[dict[str, Any]]:
    """Yield the first errors as they are sent: as many as an error lists, and as its body holds."""
    size = 0
    for error in errors[:MAX_ERRORS]:
        shown = error.wire()
        size += len(json.dumps(shown))
        if size > _ERRORS_SIZE:
            return
        yield shown


def invalid_field(field: str, message: str, code: Code = Code.INVALID_INPUT) -> ApiError:
    """Return the error of an input in which one field is invalid."""
    return invalid([FieldError(field=field, message=message)], code)


def not_found(code: Code, what: str) -> ApiError:
    """Return the error for an id that the caller's platform does not have."""
    return ApiError(code, f"No {what} with this id; check the id and the credentials' platform.")


def unknown_path() -> ApiError:
    """Return the error for a path that no operation has."""
    return ApiError(Code.REFERENCE_NOT_FOUND, "Unknown path.")


def error_response(error: ApiError) -> Response:
    """Return the response for `error`."""
    body = ErrorBody(
        status=error.status,
        code=error.code,
        message=error.message,
        details=None if error.details is None else dict(error.details),
    )
    content = json.dumps(body.wire())
    if len(content) > MAX_ERROR_BODY:
        content = json.dumps(body.model_copy(update={"details": None}).wire())
    return Response(
        content,
        status_code=error.status,
        headers={**_HEADERS.get(error.status, {}), **error.headers},
        media_type="application/json",
    )


INTERNAL: Final = ApiError(
    Code.INTERNAL_ERROR,
    "Internal error; report it with the X-Request-Id of this response.",
)


def unavailable(message: str, headers: Mapping[str, str] | None = None) -> ApiError:
    """Return the error of a service that cannot respond now."""
    return ApiError(Code.SERVICE_UNAVAILABLE, message, headers=headers)


def too_many_waiting(message: str) -> ApiError:
    """Return the error of a request that is refused at once, because others of its caller wait."""
    headers = {"Retry-After": str(RETRY_AFTER_S), "retry-after-ms": str(RETRY_AFTER_S * 1000)}
    return ApiError(Code.RATE_LIMITED, message, headers=headers)


def install(app: FastAPI) -> None:
    """Make every failure of `app` a response with the envelope."""
    for raised in UNAVAILABLE_ERRORS:
        app.add_exception_handler(raised, _database_unavailable)
    app.add_exception_handler(DBAPIError, _database_error)
    app.add_exception_handler(UnavailableError, _database_unavailable)
    app.add_exception_handler(OverloadedError, _overloaded)
    app.add_exception_handler(ReplyTimeoutError, _reply_timeout)
    app.add_exception_handler(NotConnectedError, _not_connected)
    app.add_exception_handler(TooManyInProgressError, _too_many_in_progress)
    app.add_exception_handler(TooManyEventsError, _too_many_events)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _routing_error)


async def answer(request: Request, error: Exception) -> Response:
    """Return the response for what a route has raised; raises it again when there is none."""
    handlers = request.app.exception_handlers
    for raised in type(error).__mro__:
        if raised in handlers:
            response: Response = await handlers[raised](request, error)
            return response
    raise error


async def _api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error)


async def _too_many_in_progress(_request: Request, error: Exception) -> Response:
    assert isinstance(error, TooManyInProgressError)
    counted.refuse(counted.Refusal.IN_PROGRESS)
    message = f"{error}; nothing was begun. Send the next ones when some of them are answered."
    return error_response(too_many_waiting(message[0].upper() + message[1:]))


async def _too_many_events(_request: Request, error: Exception) -> Response:
    assert isinstance(error, TooManyEventsError)
    counted.refuse(counted.Refusal.UNDECIDED_EVENTS)
    message = f"{error}; no event was accepted. Send them again when others are decided."
    return error_response(too_many_waiting(message[0].upper() + message[1:]))


async def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    clear_tracebacks(error)
    complaints = error.errors()
    for complaint in complaints:
        # No resource has a malformed id, so the response is 404, not 400.
        if complaint["loc"][0] == "path":
            if request.method not in _allowed_methods(request):
                return _method_not_allowed(request)
            code = NOT_FOUND.get(str(complaint["loc"][1]), Code.REFERENCE_NOT_FOUND)
            message = field_errors([complaint])[0].message
            return error_response(ApiError(code, f"Invalid id in the path: the id {message}."))
    first = [{**complaint, "loc": complaint["loc"][1:]} for complaint in complaints[:MAX_ERRORS]]
    return error_response(invalid(field_errors(first), count=len(complaints)))


def clear_tracebacks(error: RequestValidationError) -> None:
    """Clear the tracebacks of `error` and its causes, so that no frame is kept.

    A frame of FastAPI has the error in a variable, and the request: with the traceback, which has
    the frame, that is a reference cycle.
    """
    error.__traceback__ = None
    for complaint in error.errors():
        cause = complaint.get("ctx", {}).get("error")
        if isinstance(cause, Exception):
            cause.__traceback__ = None


async def _routing_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            return error_response(unknown_path())
        case 405:
            return _method_not_allowed(request)
        case _:
            return error_response(ApiError(Code.INVALID_INPUT, str(error.detail)))


def _method_not_allowed(request: Request) -> Response:
    allowed = ", ".join(_allowed_methods(request))
    method = "HEAD" if IS_HEAD in request.scope else request.method
    message = f"Method {method} not allowed; allowed: {allowed}."
    return error_response(ApiError(Code.METHOD_NOT_ALLOWED, message, headers={"Allow": allowed}))


def _allowed_methods(request: Request) -> list[str]:
    """Return the methods of the path; Starlette names only those of the first matching route.

    Where an operation has exactly this path, routes that would read its end as an id are left out.
    """
    routes = iter_route_contexts(request.app.routes)
    exact = [route.methods or () for route in routes if route.path == request.scope["path"]]
    if exact:
        allowed = {method for methods in exact for method in methods}
    else:
        allowed = {
            method
            for method in _METHODS
            if any(
                route.matches({**request.scope, "method": method})[0] is Match.FULL
                for route in request.app.routes
            )
        }
    if "GET" in allowed:
        allowed.add("HEAD")  # Routed as GET: see `middleware`.
    return [method for method in _METHODS if method in allowed]


async def _not_connected(_request: Request, error: Exception) -> Response:
    return error_response(ApiError(Code.NOT_IMPLEMENTED, str(error)))


async def _database_unavailable(request: Request, error: Exception) -> Response:
    # PostgreSQL answers; this statement took too long. Of a write, one statement says little.
    if request.method == "GET" and is_cancelled(error):
        counted.refuse(counted.Refusal.TOO_SLOW)
        return error_response(unavailable(_TOO_SLOW_READ))
    counted.refuse(counted.Refusal.DATABASE_UNAVAILABLE)
    # One line for all requests of an outage; what a client has logged is not logged again.
    database_failures.note(error.__cause__ if isinstance(error.__cause__, Exception) else error)
    return error_response(unavailable("The database is unavailable; retry in a moment."))


async def _database_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, DBAPIError)
    reached = quotas.reached_in(error)
    if reached is None:
        raise error
    message = (
        f"The platform has reached its quota of {reached.rows:,} {reached.resource}, deleted ones"
        " included; ask the operator of this installation to raise it."
    )
    return error_response(ApiError(Code.CONFLICT, message, details={"limit": reached.rows}))


async def _overloaded(_request: Request, _error: Exception) -> Response:
    counted.refuse(counted.Refusal.OVERLOADED)
    # Not logged: there are as many as the load has more than the capacity.
    message = "Too many authorizations wait to be decided; this one was not accepted. Retry later."
    return error_response(unavailable(message, {"Retry-After": "1"}))


async def _reply_timeout(_request: Request, error: Exception) -> Response:
    counted.refuse(counted.Refusal.NO_OUTCOME_IN_TIME)
    _log.warning("no outcome in time", error=str(error))
    message = (
        "The event was accepted but not decided in time; check GET /transactions before you send"
        " it again."
    )
    # Sent again, it would be another event: the network cannot recognize it as the same.
    return error_response(unavailable(message, {"x-should-retry": "false"}))
