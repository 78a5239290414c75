"""`Idempotency-Key`: a repeated request is applied once and gets the first response again.

In a process, requests with one key wait for the first of them. Between processes, they meet on the
row of the key. After a crash either neither the row nor the effect exists, or the row holds the
event, which is sent again unchanged and which the engine applies once (docs/decisions/0015).
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from fastapi import Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.errors import ApiError, unavailable
from cardledger.api.http.in_flight import (
    HEADER,
    key_reused,
    replay,
    stored_response,
    without_fields,
)
from cardledger.api.http.request_context import Attempt, RequestContext
from cardledger.ledger.messaging import idempotency_keys
from cardledger.ledger.messaging.idempotency_keys import Claim, Kept
from cardledger.schema.wire.errors import Code
from cardledger.workers.client import ReplyTimeoutError

_KEY: Final = re.compile(r"[!-~]{1,255}", re.ASCII)
"""Characters that every proxy and log passes on unchanged."""

Handler = Callable[[Request], Awaitable[Response]]
Sender = Callable[[RequestContext, Mapping[str, Any]], Awaitable[Response]]
"""Sends an event and returns the response with its outcome; the event may be sent again."""
Prepare = Callable[[RequestContext, object, Mapping[str, Any]], Awaitable[None]]
"""Asks systems outside, by the JSON of a body and the parameters of a path, both not validated,
before anything is written."""


def key_of(request: Request) -> str | None:
    """Return the key of `request`, which only a POST has.

    Raises: ApiError INVALID_INPUT.
    """
    values = request.headers.getlist(HEADER)
    if not values or request.method != "POST":
        return None
    if len(values) > 1 or not _KEY.fullmatch(values[0]):
        message = f"Invalid {HEADER}; send it once, 1 to 255 visible ASCII characters, no spaces."
        raise ApiError(Code.INVALID_INPUT, message, details={"header": HEADER})
    return values[0]


async def is_repetition(request: Request, connection: AsyncConnection) -> bool:
    """Return whether the key of `request` was used before, by the same request or by another one.

    Raises: ApiError INVALID_INPUT.
    """
    call: RequestContext = request.state.call
    key = key_of(request)
    return key is not None and await idempotency_keys.is_used(
        connection, platform_id=call.platform_id, key=_scoped(call, key)
    )


async def respond(  # noqa: PLR0913 - each by name
    request: Request,
    key: str,
    body: object,
    *,
    handle: Handler,
    send: Sender | None,
    unstored: Sequence[str],
    prepare: Prepare | None = None,
) -> Response:
    """Return the response to a request with `key`: the first response, if there was one.

    Only the first request gets the fields `unstored` of it, and the largest ones of a response
    above `in_flight.ANSWER_LIMIT`: they are not stored. `send` is for routes whose effects are
    events; other routes write in one database transaction with the key.
    Only success is stored: an error had no effect, so the request is tried again.
    Raises: ApiError CONFLICT when the key was used with another request.
    """
    first: RequestContext = request.state.call
    # Not `request.url`, which depends on the header Host as well.
    parts = [request.method, request.scope["path"], request.scope["query_string"].decode("latin-1")]
    claim = Claim(
        platform_id=first.platform_id,
        key=_scoped(first, key),
        request_hash=_hash([*parts, body]),
    )
    attempt = Attempt(claim, unstored)
    call = replace(first, attempt=attempt)
    request.state.call = call

    async def run() -> Response:
        kept = await _kept(call, claim)
        if kept is not None and kept.answer is not None:
            return replay(kept.answer)
        if prepare is not None:
            await prepare(call, body, request.path_params)
        if send is None:
            return await _with_rows(call, attempt, request, handle)
        return await _with_event(call, claim, kept, lambda: handle(request), send)

    return await call.services.in_flight.join(claim, run, unstored=unstored)


def _scoped(call: RequestContext, key: str) -> str:
    # No header has a line break in it, so an agent's key is never a key of the platform.
    return f"{call.idempotency_scope}\n{key}" if call.idempotency_scope else key


async def _with_rows(
    call: RequestContext, attempt: Attempt, request: Request, handle: Handler
) -> Response:
    """Run the route in the database transaction that uses the key and stores the response."""
    claim = attempt.claim
    async with call.begin() as connection:
        if await idempotency_keys.use(connection, claim, at=call.now()):
            attempt.connection = connection
            response = await handle(request)
            await idempotency_keys.keep(
                connection,
                claim,
                stored_response(response, attempt.unstored),
                keys=call.keys,
                at=call.now(),
            )
        else:
            response = None
    if response is None:  # Another process has committed this key.
        return await _first_response(call, claim)
    await call.client.notify(*attempt.doorbells)
    return response


async def _with_event(
    call: RequestContext,
    claim: Claim,
    kept: Kept | None,
    handle: Callable[[], Awaitable[Response]],
    send: Sender,
) -> Response:
    """Run the route, or send the stored event of a request whose response was lost."""
    try:
        if kept is not None and kept.event is not None:
            response = await send(call, kept.event)
        else:
            response = await _handled(call, handle, send)
    except ReplyTimeoutError:
        message = (
            "The event was accepted but not decided in time; send the request again with the same"
            f" {HEADER}: it is applied once."
        )
        raise unavailable(message) from None
    answer = stored_response(response, _unstored(call))
    async with call.begin(may_refuse=False) as connection:
        ours = await idempotency_keys.keep(connection, claim, answer, keys=call.keys, at=call.now())
    return response if ours else await _first_response(call, claim)


async def _handled(
    call: RequestContext, handle: Callable[[], Awaitable[Response]], send: Sender
) -> Response:
    """Run the route, unless it is a repetition: another process may have applied it meanwhile.

    The route looks at the state that it is to change before it uses the key. So what it refuses may
    be what the same request has already done.
    """
    assert call.attempt is not None
    try:
        return await handle()
    except ApiError:
        kept = None if call.attempt.has_event else await _kept(call, call.attempt.claim)
        if kept is None or kept.event is None:
            raise
        return await send(call, kept.event) if kept.answer is None else replay(kept.answer)


async def settle(call: RequestContext, event: dict[str, Any]) -> Mapping[str, Any]:
    """Return the event that this request sends: `event`, or the event stored for its key.

    Repetitions of the request send the same event. Raises: ApiError CONFLICT.
    """
    if call.attempt is None:
        return event
    claim = call.attempt.claim
    call.attempt.has_event = True
    named = {**event, "reference": claim.reference}
    async with call.begin() as connection:
        if await idempotency_keys.use(connection, claim, at=call.now(), event=named):
            return named
    kept = await _kept(call, claim)  # Another process has used this key.
    assert kept is not None
    assert kept.event is not None
    return kept.event


async def _kept(call: RequestContext, claim: Claim) -> Kept | None:
    async with call.services.platforms.reading(call.platform_id) as connection:
        kept = await idempotency_keys.find(
            connection, platform_id=claim.platform_id, key=claim.key, keys=call.keys
        )
    if kept is not None and kept.request_hash != claim.request_hash:
        raise key_reused()
    if kept is None or kept.answer is None:
        return kept
    # Earlier releases stored them as well.
    return replace(kept, answer=without_fields(kept.answer, _unstored(call)))


def _unstored(call: RequestContext) -> Sequence[str]:
    return () if call.attempt is None else call.attempt.unstored


async def _first_response(call: RequestContext, claim: Claim) -> Response:
    kept = await _kept(call, claim)
    assert kept is not None
    assert kept.answer is not None
    return replay(kept.answer)


def _hash(parts: list[object]) -> bytes:
    """Return a hash that is equal for repetitions, with names in any order.

    A file counts by its name and a hash of its own, which `str` returns of an upload.
    """
    return sha256(json.dumps(parts, sort_keys=True, default=str).encode()).digest()
