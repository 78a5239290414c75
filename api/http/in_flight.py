"""Requests in progress in this process.

Concurrent requests with one `Idempotency-Key` wait for the first of them. Requests that wait for
others may be few of a platform at a time, and those that write take turns.
"""

import asyncio
from asyncio import Future, Semaphore
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from fastapi import Response
from pydantic_core import from_json, to_json

from cardledger.api.http.errors import ApiError, too_many_waiting
from cardledger.ledger.messaging.idempotency_keys import Answer, Claim
from cardledger.schema.ids import Id
from cardledger.schema.wire.errors import Code
from cardledger.workers.client import UnavailableError
from cardledger.workers.metrics import counted

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"

ANSWER_LIMIT: Final = 32 * 1024
"""Bytes of a response that are stored with a key: an agent with 100 rules has fewer."""

WAITING_LIMIT: Final = 1000
"""The most requests of a caller that wait for their turn to write."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A request in progress, and its future response."""

    request_hash: bytes
    response: "Future[Answer]"


class InFlight:
    """Requests in progress in this process, by platform and key."""

    def __init__(self) -> None:
        self._requests: Final[dict[tuple[Id, str], _Request]] = {}

    async def join(
        self, claim: Claim, run: Callable[[], Awaitable[Response]], *, unstored: Sequence[str] = ()
    ) -> Response:
        """Return the response of `run`, or that of a request with the same key that is running.

        Only the request that runs gets the fields `unstored`.
        Raises: ApiError CONFLICT when the running request is a different one.
        """
        scope = claim.platform_id, claim.key
        first = self._requests.get(scope)
        if first is not None:
            if first.request_hash != claim.request_hash:
                raise key_reused()
            # Shielded: a client that disconnects must not cancel the response of the others.
            return replay(await asyncio.shield(first.response))
        first = _Request(claim.request_hash, asyncio.get_running_loop().create_future())
        self._requests[scope] = first
        try:
            response = await run()
        except BaseException as error:
            is_error = isinstance(error, Exception)
            failure = error if is_error else UnavailableError("request cancelled")
            first.response.set_exception(failure)
            # Marks the exception as retrieved: perhaps no other request waits for it.
            first.response.exception()
            raise
        else:
            first.response.set_result(stored_response(response, unstored))
            return response
        finally:
            del self._requests[scope]


class TooManyRequestsError(Exception):
    """The platform has the most requests of a kind that it may have at a time."""


class ConcurrencyLimit:
    """Counts the requests of a kind in this process, by platform."""

    def __init__(self, limit: int) -> None:
        """Let a platform have `limit` of them at a time."""
        self._limit: Final = limit
        self._entered: Final[Counter[Id]] = Counter()

    @contextmanager
    def enter(self, platform_id: Id) -> Iterator[None]:
        """Count the block as a request of the platform.

        Raises: TooManyRequestsError; the block is not entered.
        """
        if self._entered[platform_id] >= self._limit:
            raise TooManyRequestsError
        self._entered[platform_id] += 1
        try:
            yield
        finally:
            self._entered[platform_id] -= 1
            if not self._entered[platform_id]:
                del self._entered[platform_id]


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose requests take turns, and how many at a time in this process; `may_wait` more."""

    who: str
    at_once: int
    may_wait: int = WAITING_LIMIT


@dataclass(slots=True)
class _Queue:
    """The requests of one caller: those that write and those that wait."""

    free: Semaphore
    requests: int = 0


class Turns:
    """Requests of one caller that write or are large, few at a time; the others wait in order.

    Requests of one caller tend to want the same row or advisory lock. In PostgreSQL each of them
    would wait for it with a connection, until none is left for other callers; here they wait
    without one.
    """

    def __init__(self, *, waiting_limit: int = WAITING_LIMIT) -> None:
        """Let `waiting_limit` requests of a caller wait, unless their turn has a lower limit."""
        self._waiting_limit: Final = waiting_limit
        self._queues: Final[dict[str, _Queue]] = {}

    @asynccontextmanager
    async def take(self, turn: Turn, *, may_refuse: bool = True) -> AsyncIterator[None]:
        """Wait for `turn` and keep it for the block.

        Raises: ApiError RATE_LIMITED at once when too many wait and it `may_refuse`; the block is
        not entered.
        """
        queue = self._queues.get(turn.who)
        if queue is None:
            queue = self._queues[turn.who] = _Queue(Semaphore(turn.at_once))
        limit = min(self._waiting_limit, turn.may_wait)
        if may_refuse and queue.requests >= turn.at_once + limit:
            message = f"As many requests of this caller wait for their turn as may: {limit}."
            counted.refuse(counted.Refusal.WRITE_TURNS)
            raise too_many_waiting(message)
        queue.requests += 1
        try:
            async with queue.free:
                yield
        finally:
            queue.requests -= 1
            if not queue.requests:
                del self._queues[turn.who]


def stored_response(response: Response, unstored: Sequence[str]) -> Answer:
    """Return what is stored of `response`: its status, and its body without `unstored`.

    Of a body that is too large all the same, without its largest fields.
    """
    answer = Answer(response.status_code, bytes(response.body))
    return _bounded(without_fields(answer, unstored))


def without_fields(answer: Answer, paths: Sequence[str]) -> Answer:
    """Return `answer` without the fields at `paths`, such as `deviceCode.code`."""
    if not paths:
        return answer
    body = from_json(answer.body)
    for path in paths:
        *parents, name = path.split(".")
        part = reduce(lambda outer, inner: outer.get(inner) or {}, parents, body)
        part.pop(name, None)
    return Answer(answer.status, to_json(body))


def _bounded(answer: Answer) -> Answer:
    """Return `answer` without as many of its largest fields as exceed `ANSWER_LIMIT`.

    Keys are permanent, and a platform may use any number of them.
    """
    if len(answer.body) <= ANSWER_LIMIT:
        return answer
    body = from_json(answer.body)
    while len(to_json(body)) > ANSWER_LIMIT and _drop_largest(body):
        pass
    return Answer(answer.status, to_json(body))


def _drop_largest(resource: dict[str, Any]) -> bool:
    """Remove the largest field of `resource`, or of the resource in it; False: only ids are left.

    The ids stay: GET shows by them what is missing.
    """
    names = [name for name in resource if name != "id"]
    if not names:
        return False
    largest = max(names, key=lambda name: len(to_json(resource[name])))
    inner = resource[largest]
    if not (isinstance(inner, dict) and "id" in inner and _drop_largest(inner)):
        del resource[largest]
    return True


def replay(first: Answer) -> Response:
    """Return the first response again, marked as a replay."""
    return Response(
        first.body,
        status_code=first.status,
        headers={REPLAYED: "true", "Cache-Control": "no-store"},
        media_type="application/json",
    )


def key_reused() -> ApiError:
    """Return the 409 for a key that stands for another request."""
    message = f"{HEADER} was already used with a different request."
    return ApiError(Code.CONFLICT, message, details={"header": HEADER})
