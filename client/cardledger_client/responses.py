"""Responses: resources, errors, and streams of outcomes."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import httpx2

from cardledger_client.errors import INVALID_RESPONSE, NO_RESPONSE, Error
from cardledger_client.resources import Accepted, Outcome

OK: Final = 200
_NOT_FOUND: Final = 404
_FIRST_ERROR: Final = 300  # The interface redirects nowhere.
_RATE_LIMITED: Final = 429
_UNAVAILABLE: Final = 503
_RETRIED: Final = frozenset({_RATE_LIMITED, 502, _UNAVAILABLE, 504})
_LINE_LIMIT: Final = 1024 * 1024
_NEWLINE: Final = b"\n"


def resource(response: httpx2.Response, *, is_repeatable: bool = True) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON of `response`; None when it has no body.

    Raises: Error.
    """
    if response.status_code >= _FIRST_ERROR:
        raise error_of(response, is_repeatable=is_repeatable)
    return json_of(response.content) if response.content else None


def accepted(counts: Iterable[Mapping[str, int]]) -> Accepted:
    """Return the sum of `counts`, one of each request."""
    every = list(counts)
    return Accepted(
        accepted=sum(each["accepted"] for each in every),
        rejected=sum(each["rejected"] for each in every),
    )


def json_of(content: bytes) -> Any:  # noqa: ANN401 - JSON
    """Return `content`, parsed.

    Raises: Error INVALID_RESPONSE.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise Error(INVALID_RESPONSE, f"not JSON: {content[:100]!r}") from None


def outcome_of(fields: Any) -> Outcome:  # noqa: ANN401 - JSON
    """Return `fields`, a JSON object, as an outcome.

    Raises: Error INVALID_RESPONSE.
    """
    if not isinstance(fields, dict) or not isinstance(fields.get("outcome"), str):
        raise Error(INVALID_RESPONSE, f"not an outcome: {str(fields)[:100]}")
    return Outcome(
        outcome=fields["outcome"],
        reference=fields.get("reference"),
        reason=fields.get("reason"),
        detail=fields.get("detail"),
        first_outcome=fields.get("firstOutcome"),
        card_transaction=fields.get("cardTransaction"),
    )


def is_without_outcome(error: Error, source: str, reference: str) -> bool:
    """Return whether `error` says that this event has no outcome.

    The server names the event. A 404 of a proxy or of an unknown path does not; and where a proxy
    has changed the path, the event is another one.
    """
    key = (error.details.get("source"), error.details.get("reference"))
    return error.status == _NOT_FOUND and key == (source, reference)


def error_of(response: httpx2.Response, *, is_repeatable: bool = True) -> Error:
    """Return the error in `response`, whose content has been read.

    `is_repeatable` is that of the request: any other may be sent again only when it was refused.
    """
    status, headers, content = response.status_code, response.headers, response.content
    body = _error_body(status, content)
    is_worth_it = status in _RETRIED and headers.get("x-should-retry") != "false"
    is_refused = status == _RATE_LIMITED or (status == _UNAVAILABLE and body is not None)
    may_retry = is_worth_it and (is_repeatable or is_refused)
    if body is None:
        # A proxy, perhaps: what became of the request is unknown.
        return _not_ours(status, content, may_retry=may_retry)
    details = body.get("details")
    return Error(
        body["code"],
        body["message"],
        status=status,
        details=details if isinstance(details, dict) else {},
        request_id=headers.get("x-request-id"),
        retry_after_s=_retry_after_s(headers),
        may_retry=may_retry,
    )


def _error_body(status: int, content: bytes) -> dict[str, Any] | None:
    """Return the body of an error of cardledger, which repeats the status; None for any other."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or body.get("status") != status:
        return None
    is_ours = isinstance(body.get("code"), str) and isinstance(body.get("message"), str)
    return body if is_ours else None


def no_response(cause: Exception, *, may_retry: bool = True) -> Error:
    """Return the error of a call without a response, or with a part of it."""
    message = str(cause) or type(cause).__name__
    return Error(NO_RESPONSE, message, may_retry=may_retry)


def _not_ours(status: int, content: bytes, *, may_retry: bool) -> Error:
    message = f"status {status}, and not the JSON of cardledger: {content[:100]!r}"
    return Error(INVALID_RESPONSE, message, status=status, may_retry=may_retry)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait, as the server asks for; None when it does not, or by a date."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        if value.isascii() and value.isdigit():
            return int(value) * unit_s
    return None


class Lines:
    """Cuts a stream into lines at newlines alone: strings in JSON may contain other line ends."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that `chunk` completes; what follows the last newline is no line yet.

        Raises: Error INVALID_RESPONSE for a line without an end.
        """
        *lines, self._rest = (self._rest + chunk).split(_NEWLINE)
        yield from filter(None, lines)
        if len(self._rest) > _LINE_LIMIT:
            raise Error(INVALID_RESPONSE, f"a line of more than {_LINE_LIMIT} bytes")
