"""Answer a request in time, whatever PostgreSQL does.

A request uses several connections and statements one after the other, each with a time limit of its
own, and waits for a free connection before each: their sum is no limit. So the request itself has
one. When it is over the response is sent at once, and what the request did is cancelled after that:
giving a connection back to a server that is silent takes seconds, too.
"""

import asyncio
from asyncio import CancelledError, Task, TimerHandle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cardledger.api.http.errors import ApiError, error_response, unavailable
from cardledger.api.http.in_flight import HEADER
from cardledger.api.ingestion.bodies import PATH as EVENTS_PATH
from cardledger.workers.metrics import counted

GRACE_S: Final = 0.5
"""How much longer a request may take than the wait for its outcome, which says more."""

_READS: Final = frozenset({"GET", "HEAD"})
_UNTIMED: Final = "cardledger.untimed"


def untimed(scope: Scope) -> AbstractContextManager[None]:
    """Return a block whose time does not count: it computes in turns, or rests between them."""
    block: Callable[[], AbstractContextManager[None]] = scope.get(_UNTIMED, nullcontext)
    return block()


class TimeLimit:
    """Wraps the application; a request that takes too long gets a 503."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limit_s: float,
        answer_of: Callable[[Scope], ASGIApp | None] | None = None,
    ) -> None:
        """Give every request `limit_s`, without the time that its caller takes to send it.

        `answer_of` returns what sends the 503 of a request; None: it is an error of the API.
        """
        self._app: Final = app
        self._limit_s: Final = limit_s
        self._answer_of: Final = answer_of or _no_answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        limited = _Limited(scope, receive, send, self._limit_s, self._answer_of)
        await limited.run(self._app)


def _no_answer(_: Scope) -> ASGIApp | None:
    return None


class _Limited:
    """One request and its limit; no time passes while it is being received."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        limit_s: float,
        answer_of: Callable[[Scope], ASGIApp | None],
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task: Final = task
        self._loop: Final = asyncio.get_running_loop()
        self._scope: Final = scope
        self._receive: Final = receive
        self._send: Final = send
        self._answer_of: Final = answer_of
        self._left_s = limit_s
        self._resumed_at = 0.0
        self._pauses = 1  # It has not begun.
        self._timer: TimerHandle | None = None
        self._answer: Task[None] | None = None  # Of a request that took too long.
        self._has_responded = False

    async def run(self, app: ASGIApp) -> None:
        self._scope[_UNTIMED] = self._untimed
        self._resume()
        try:
            await app(self._scope, self._receive_untimed, self._send_in_time)
        except CancelledError:
            # Another cancellation than that of `_end` is passed on.
            if self._answer is None or self._task.uncancel() > 0:
                raise
        finally:
            # A reference cycle: without it the request is freed at once, and not by the collector.
            self._scope.pop(_UNTIMED, None)
            self._pause()
            if self._answer is not None:
                await self._answer

    async def _receive_untimed(self) -> Message:
        self._pause()
        try:
            return await self._receive()
        finally:
            self._resume()

    @contextmanager
    def _untimed(self) -> Iterator[None]:
        self._pause()
        try:
            yield
        finally:
            self._resume()

    async def _send_in_time(self, message: Message) -> None:
        if self._answer is not None:
            return  # The caller has its response.
        self._has_responded = True
        self._pause()
        await self._send(message)

    def _pause(self) -> None:
        self._pauses += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left_s -= self._loop.time() - self._resumed_at

    def _resume(self) -> None:
        self._pauses -= 1
        if self._pauses or self._has_responded or self._answer is not None:
            return
        self._resumed_at = self._loop.time()
        self._timer = self._loop.call_later(self._left_s, self._end)

    def _end(self) -> None:
        self._timer = None
        counted.refuse(counted.Refusal.TOO_SLOW)
        answer = self._answer_of(self._scope) or error_response(_too_slow(self._scope))
        self._answer = self._loop.create_task(self._respond(answer))
        self._task.cancel()

    async def _respond(self, answer: ASGIApp) -> None:
        await answer(self._scope, self._receive, self._send)


def _too_slow(scope: Scope) -> ApiError:
    if scope["method"] in _READS:
        return unavailable("The database does not answer in time; retry in a moment.")
    if scope["path"] == EVENTS_PATH:
        return unavailable(
            "The events were not accepted in time; some of them may be. Send the same events again,"
            " fewer at once: none is applied twice."
        )
    is_repeatable = HEADER in Headers(scope=scope)
    return unavailable(
        "The database does not answer in time, and the request may have taken effect; send it again"
        f" with the same {HEADER}, or read first what it should have changed.",
        None if is_repeatable else {"x-should-retry": "false"},
    )
