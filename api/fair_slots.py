"""Requests that are processed at a time, shared fairly among platforms.

A process has one event loop, in which each request in progress takes its turns, and its events take
places in the batches of the engine. So every request waits for all that are in progress: without a
limit, the connections of one platform set the latency of all others
(docs/decisions/0050-fair-shares.md).
"""

import asyncio
from asyncio import Future, TimerHandle
from collections import Counter, OrderedDict
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cardledger.ledger.messaging.fair_queue import FairQueue
from cardledger.schema.ids import Id

DEFAULT_LIMIT: Final = 1_000
DEFAULT_WAIT_S: Final = 3.0
"""How long a request waits for a slot at most: the time limit of the request counts from its
arrival, and the deadline of an authorization, which must end before that, from its slot. A refusal
costs as much time of the event loop as many a request, and is followed by the next request at once,
so the wait also limits how much of that time a caller has."""

_GOLDEN: Final = 0.618
_ACTIVE_S: Final = 10.0  # So long after its last request a platform counts as one that sends.
_PATIENCE_S: Final = 0.5  # What waits longer, for a lock or a worker, leaves its slot.
_SHORTEST_REST_S: Final = 0.005
_LONGEST_REST_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """How many requests are processed at a time."""

    total: int  # Of all platforms.
    alone: int  # Of one caller while no other platform sends.
    shared: int  # Of one caller while others send.


class Work(Enum):
    """What a request does while it has its slot. Each kind has slots of its own.

    So events that wait for a worker delay no read, slow reads no write, and writes no event.
    """

    EVENT = "sends events, and waits until they are decided"
    WRITE = "writes rows"
    READ = "reads rows"

    @property
    def shares(self) -> Shares:
        """How many requests do it at a time."""
        return _SHARES[self]

    @property
    def keeps_its_slot(self) -> bool:
        """Whether a request has its slot until its end.

        A read holds a connection to the database, which has a time limit.
        """
        return self is Work.READ

    @property
    def rests(self) -> bool:
        """Whether the slot of a request rests after it while other platforms send."""
        return self is Work.READ


# More events do not raise the rate of a caller. Writes and reads keep a connection of the pool, a
# processor of PostgreSQL, and the event loop: each has ten statements or more.
_SHARES: Final = {
    Work.EVENT: Shares(total=128, alone=64, shared=8),
    Work.WRITE: Shares(total=28, alone=12, shared=2),
    Work.READ: Shares(total=28, alone=12, shared=2),
}


class TooManyInProgressError(Exception):
    """The caller has as many requests in progress as it may have, or waited too long for a slot.

    The message says which of the two.
    """


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose requests share slots: those of one kind, `what`, of one platform, for one work."""

    platform_id: Id
    what: str
    work: Work


@dataclass(slots=True, eq=False)
class _Request:
    """A request, and the future that is set when it gets its slot, if it had to wait."""

    caller: Caller
    has_slot: bool = False
    since: float = 0.0  # When it got its slot.
    granted: "Future[None] | None" = None


class _Slot:
    """The block of a request; a generator would take twice as long, at every request."""

    def __init__(self, slots: "FairSlots", request: _Request) -> None:
        self._slots: Final = slots
        self._request: Final = request

    async def __aenter__(self) -> None:
        await self._slots.enter(self._request)

    async def __aexit__(self, *_: object) -> None:
        self._slots.leave(self._request)


class FairSlots:
    """The slots of one process. Requests that find none wait, and platforms take turns."""

    def __init__(
        self,
        *,
        limit: int = DEFAULT_LIMIT,
        patience_s: float = _PATIENCE_S,
        wait_s: float = DEFAULT_WAIT_S,
        longest_rest_s: float = _LONGEST_REST_S,
    ) -> None:
        """Let `limit` requests of a caller be processed or wait, each at most for `wait_s`.

        What takes longer than `patience_s`, and is no read, leaves its slot to those that wait. The
        slot of a read rests for `longest_rest_s` at most.
        """
        self._limit: Final = limit
        self._patience_s: Final = patience_s
        self._wait_s: Final = wait_s
        self._longest_rest_s: Final = longest_rest_s
        self._requests: Final[Counter[Caller]] = Counter()
        self._taken: Final[Counter[Caller]] = Counter()
        self._total: Final[Counter[Work]] = Counter()
        # Those that do not keep theirs, oldest first.
        self._leaving: Final[dict[Work, OrderedDict[_Request, None]]] = {
            work: OrderedDict() for work in Work if not work.keeps_its_slot
        }
        self._waiting: Final[dict[Work, FairQueue[Caller, _Request]]] = {
            work: FairQueue() for work in Work
        }
        self._senders: Final[OrderedDict[Id, float]] = OrderedDict()  # When they sent last.
        self._timers: Final[dict[Work, TimerHandle]] = {}
        self._spread = 0.0  # From 0 to 1, of the last request that waited.

    @property
    def is_shared(self) -> bool:
        """Whether more than one platform has sent a request in the last seconds."""
        self._forget_senders(self._now())
        return len(self._senders) > 1

    def take(self, platform_id: Id, what: str, work: Work) -> AbstractAsyncContextManager[None]:
        """Wait for a slot and keep it for the block, or for a moment only, by the kind of `work`.

        Raises: TooManyInProgressError, at the block; it is not entered.
        """
        return _Slot(self, _Request(Caller(platform_id, what, work)))

    async def enter(self, request: _Request) -> None:
        """Count `request`, and wait for its slot. Raises: TooManyInProgressError."""
        caller = request.caller
        if self._requests[caller] >= self._limit:
            message = f"{self._limit} requests of this caller are in progress, the maximum"
            raise TooManyInProgressError(message)
        self._requests[caller] += 1
        try:
            await self._wait(request)
        except BaseException:
            self.leave(request)
            raise

    def leave(self, request: _Request) -> None:
        """Count `request`, which has ended, no more."""
        caller = request.caller
        self._leave(request)
        self._requests[caller] -= 1
        if not self._requests[caller]:
            del self._requests[caller]

    async def _wait(self, request: _Request) -> None:
        now = self._now()
        self._note_sender(request.caller.platform_id, now)
        waiting = self._waiting[request.caller.work]
        if not waiting.has(request.caller) and self._is_free(request.caller):
            self._enter(request, now)
            return
        request.granted = asyncio.get_running_loop().create_future()
        waiting.put(request.caller, request)
        self._watch(request.caller.work)
        limit_s = self._next_wait_s()
        try:
            async with asyncio.timeout(limit_s):
                await request.granted
        except TimeoutError:
            message = f"the request waited {limit_s:.1f} s for others of this caller"
            raise TooManyInProgressError(message) from None
        finally:
            waiting.discard(request.caller, request)  # Where it has not got its slot.

    def _next_wait_s(self) -> float:
        """Return how long the next request waits, from half of the limit on.

        Requests that arrive together would be refused together, and everyone else would wait for
        all of these responses.
        """
        self._spread = (self._spread + _GOLDEN) % 1.0  # Any two in a row are far apart.
        return self._wait_s * (1 + self._spread) / 2

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _note_sender(self, platform_id: Id, now: float) -> None:
        self._senders[platform_id] = now
        self._senders.move_to_end(platform_id)
        self._forget_senders(now)

    def _forget_senders(self, now: float) -> None:
        while self._senders and now - next(iter(self._senders.values())) > _ACTIVE_S:
            self._senders.popitem(last=False)

    def _is_free(self, caller: Caller) -> bool:
        shares = caller.work.shares
        share = shares.alone if len(self._senders) == 1 else shares.shared
        return self._total[caller.work] < shares.total and self._taken[caller] < share

    def _enter(self, request: _Request, now: float) -> None:
        work = request.caller.work
        request.has_slot, request.since = True, now
        self._total[work] += 1
        self._taken[request.caller] += 1
        if not work.keeps_its_slot:
            self._leaving[work][request] = None
            self._watch(work)

    def _leave(self, request: _Request) -> None:
        """Give the slot of `request` to those that wait, unless it has left it before.

        Where it rests, its caller does not get it again at once: each slow read keeps a processor
        of PostgreSQL busy, which serves all platforms. The other slots of the caller do not rest.
        """
        if not request.has_slot:
            return
        caller, work = request.caller, request.caller.work
        worked_s = self._now() - request.since if work.rests else 0.0
        request.has_slot = False
        self._total[work] -= 1
        if not work.keeps_its_slot:
            del self._leaving[work][request]
        rest_s = min(worked_s, self._longest_rest_s) if worked_s >= _SHORTEST_REST_S else 0.0
        if rest_s and self.is_shared:
            asyncio.get_running_loop().call_later(rest_s, self._return_share, caller)
            self._grant(work)
        else:
            self._return_share(caller)

    def _return_share(self, caller: Caller) -> None:
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]
        self._grant(caller.work)

    def _grant(self, work: Work) -> None:
        waiting, shares = self._waiting[work], work.shares
        if not waiting:
            return
        full = {caller for caller in self._taken if not self._is_free(caller)}
        while waiting and self._total[work] < shares.total:
            found = waiting.take(without=full)
            if found is None:
                return
            caller, request = found
            assert request.granted is not None, "it waits"
            if not request.granted.done():  # Cancelled, and not run since.
                self._enter(request, self._now())
                request.granted.set_result(None)
                if not self._is_free(caller):
                    full.add(caller)

    def _watch(self, work: Work) -> None:
        """While requests wait, end the slots of those that have had theirs for too long."""
        leaving = self._leaving.get(work)
        if leaving and work not in self._timers and self._waiting[work]:
            since = next(iter(leaving)).since
            self._timers[work] = asyncio.get_running_loop().call_at(
                since + self._patience_s, self._expire, work
            )

    def _expire(self, work: Work) -> None:
        del self._timers[work]
        now, leaving = self._now(), self._leaving[work]
        while self._waiting[work] and leaving:
            oldest = next(iter(leaving))
            if now - oldest.since < self._patience_s:
                break
            self._leave(oldest)
        self._watch(work)
