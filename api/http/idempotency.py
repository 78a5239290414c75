"""`Idempotency-Key`: a request that is sent again is answered again, and done once.

Three things see to that. In a process, requests with one key wait for the first of them. Between
processes, the row of the key is what they meet on. And after a crash, either the row is not there
and neither is the effect, or the row has the event in it, which is then sent again as it was: the
engine applies it once (docs/decisions/0015).
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from fastapi import Request, Response

from cardledger.api.http.errors import ApiError, unavailable
from cardledger.api.http.in_flight import HEADER, answer_of, key_reused, replay
from cardledger.api.http.request_context import AnyCall, Attempt
from cardledger.ledger.messaging import idempotency_keys
from cardledger.ledger.messaging.idempotency_keys import Claim, Kept
from cardledger.schema.wire.errors import Code
from cardledger.workers.client import ReplyTimeoutError

_KEY: Final = re.compile(r"[!-~]{1,255}", re.ASCII)
"""What every proxy and log passes on as it is."""

Handler = Callable[[Request], Awaitable[Response]]
Sender = Callable[[AnyCall, Mapping[str, Any]], Awaitable[Response]]
"""Sends an event and answers with what came of it; it may be sent again."""


def key_of(request: Request) -> str | None:
    """Return the key of `request`; only a POST has one.

    Raises: ApiError INVALID_INPUT.
    """
    sent = request.headers.getlist(HEADER)
    if not sent or request.method != "POST":
        return None
    if len(sent) > 1 or not _KEY.fullmatch(sent[0]):
        message = f"send the header {HEADER} once, 1 to 255 visible ASCII characters, no blanks"
        raise ApiError(Code.INVALID_INPUT, message, details={"header": HEADER})
    return sent[0]


async def answer(
    request: Request, key: str, body: object, *, handle: Handler, send: Sender | None
) -> Response:
    """Answer a request that came with `key`, as it was answered the first time.

    `send` is for routes whose effects are events; what others do is in one database transaction
    with the key. Only success is kept: what was refused has done nothing, so it is judged anew.
    Raises: ApiError CONFLICT when the key stands for another request.
    """
    first: AnyCall = request.state.call
    # Not `request.url`, which is made of the header Host as well.
    said = [request.method, request.scope["path"], request.scope["query_string"].decode("latin-1")]
    claim = Claim(
        platform_id=first.platform_id,
        # No header has a line break in it, so what an agent sends is never a key of the platform.
        key=f"{first.idempotency_scope}\n{key}" if first.idempotency_scope else key,
        request_hash=_hash([*said, body]),
    )
    attempt = Attempt(claim)
    call = replace(first, attempt=attempt)
    request.state.call = call

    async def run() -> Response:
        kept = await _kept(call, claim)
        if kept is not None and kept.answer is not None:
            return replay(kept.answer)
        if send is None:
            return await _with_rows(call, attempt, request, handle)
        return await _with_event(call, claim, kept, lambda: handle(request), send)

    return await call.services.in_flight.join(claim, run)


async def _with_rows(
    call: AnyCall, attempt: Attempt, request: Request, handle: Handler
) -> Response:
    """Let the route write in the database transaction that uses the key and keeps the answer."""
    claim = attempt.claim
    async with call.services.writer.begin() as connection:
        if await idempotency_keys.use(connection, claim, at=call.now()):
            attempt.connection = connection
            response = await handle(request)
            await idempotency_keys.keep(
                connection, claim, answer_of(response), keys=call.keys, at=call.now()
            )
        else:
            response = None
    if response is None:  # Another process was faster; it has committed.
        return await _first_answer(call, claim)
    await call.client.notify(*attempt.doorbells)
    return response


async def _with_event(
    call: AnyCall,
    claim: Claim,
    kept: Kept | None,
    handle: Callable[[], Awaitable[Response]],
    send: Sender,
) -> Response:
    """Let the route send its event, or send that of a request whose answer was lost."""
    try:
        if kept is not None and kept.event is not None:
            response = await send(call, kept.event)
        else:
            response = await handle()
    except ReplyTimeoutError:
        message = (
            "the message was accepted and not decided in time; send it again with the same"
            f" {HEADER}, and it is done once"
        )
        raise unavailable(message) from None
    async with call.services.writer.begin() as connection:
        ours = await idempotency_keys.keep(
            connection, claim, answer_of(response), keys=call.keys, at=call.now()
        )
    return response if ours else await _first_answer(call, claim)


async def settle(call: AnyCall, event: dict[str, Any]) -> Mapping[str, Any]:
    """Return the event that this request sends: `event`, or the one its key already stands for.

    From here on a repetition sends the same one. Raises: ApiError CONFLICT.
    """
    if call.attempt is None:
        return event
    claim = call.attempt.claim
    named = {**event, "reference": claim.reference}
    async with call.services.writer.begin() as connection:
        if await idempotency_keys.use(connection, claim, at=call.now(), event=named):
            return named
    kept = await _kept(call, claim)  # Another process was faster.
    assert kept is not None
    assert kept.event is not None
    return kept.event


async def _kept(call: AnyCall, claim: Claim) -> Kept | None:
    async with call.services.reader.connect() as connection:
        kept = await idempotency_keys.find(
            connection, platform_id=claim.platform_id, key=claim.key, keys=call.keys
        )
    if kept is not None and kept.request_hash != claim.request_hash:
        raise key_reused()
    return kept


async def _first_answer(call: AnyCall, claim: Claim) -> Response:
    kept = await _kept(call, claim)
    assert kept is not None
    assert kept.answer is not None
    return replay(kept.answer)


def _hash(said: list[object]) -> bytes:
    """Return what tells a repetition from another request; the order of names says nothing."""
    try:
        canonical = json.dumps(said, sort_keys=True)
    except RecursionError:
        raise ApiError(Code.INVALID_INPUT, "the body is nested too deeply") from None
    return sha256(canonical.encode()).digest()
