"""The time limit of a request counts its waits, and not what it receives or computes in turns."""

import asyncio
from contextlib import suppress

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cardledger.api.time_limit import TimeLimit, untimed

LIMIT_S = 0.05
LONGER_S = 4 * LIMIT_S


async def status_of(app: ASGIApp) -> int:
    """Return the status that a request of `app` is answered with."""
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(LONGER_S)
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    with suppress(asyncio.CancelledError):
        await TimeLimit(app, limit_s=LIMIT_S)(scope, receive, send)
    return int(sent[0]["status"])


async def respond(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def computing(scope: Scope, receive: Receive, send: Send) -> None:
    with untimed(scope):
        await asyncio.sleep(LONGER_S)
        await receive()  # Whose end does not begin the time again.
        await asyncio.sleep(LONGER_S)
    with suppress(LookupError), untimed(scope):
        await asyncio.sleep(LONGER_S)
        raise LookupError
    await respond(send)


async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
    with untimed(scope):
        await receive()
    await asyncio.sleep(LONGER_S)
    await respond(send)


@pytest.mark.parametrize(("app", "status"), [(computing, 200), (waiting, 503)])
def test_what_a_request_computes_in_turns_does_not_count(app: ASGIApp, status: int) -> None:
    assert asyncio.run(status_of(app)) == status


def test_without_a_limit_every_block_is_untimed() -> None:
    with untimed({}):
        pass
