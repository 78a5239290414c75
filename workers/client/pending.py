"""Accepted messages whose outcomes callers wait for."""

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Final

from cardledger.ledger.messaging.inbox import Lane, Message
from cardledger.ledger.storage.database_clock import elapsed_s
from cardledger.schema.ids import Id
from cardledger.schema.wire.outcomes import Outcome
from cardledger.workers.client.errors import as_unavailable

LOOK_UP_LIMIT: Final = 1000
"""Messages that one query looks up."""

_LOOK_UP_BEFORE_S: Final = 0.25  # Before a deadline; or after half of the time, if that is later.
_LOOK_UP_AGAIN_S: Final = 0.05


@dataclass(slots=True)
class _Pending:
    message: Message
    outcome: "Future[Outcome]"
    report_by: float | None  # Of an approval, on the clock of `elapsed_s`.
    look_up_at: float  # Whatever the patience; on the same clock.
    forget: "Callable[[Future[Outcome]], None]"  # Called when its caller abandons it.
    checked_at: float | None = None  # When its commit was known, then when it was last looked up.


class PendingOutcomes:
    """The futures of accepted messages, resolved by a reply over Redis or by a look-up.

    A look at what is overdue takes as long as what it finds, however many others are pending: it
    runs on the event loop, many times a second, and the events of a stalled queue stay pending.
    """

    def __init__(self) -> None:
        self._pending: Final[dict[Id, _Pending]] = {}
        # Those whose commit is known, of each lane; those that were not looked up for longest come
        # first. Before its commit the record cannot answer for a message.
        self._committed: Final[dict[Lane, dict[Id, _Pending]]] = {lane: {} for lane in Lane}
        # A heap of (`look_up_at`, message) of those with a deadline. Without an effect are those
        # that are not pending any more, and times that are not those of their messages any more.
        self._deadlines: list[tuple[float, Id]] = []
        self._reply_arrived: Final = asyncio.Event()
        self.last_reply_at = 0.0  # On the clock of `elapsed_s`.

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(
        self, message: Message, outcome: "Future[Outcome]", report_by: float | None = None
    ) -> None:
        """Wait for the outcome of `message`, which is about to be committed or is committed.

        An approval that arrives after `report_by` is not an outcome any more. What its caller
        abandons is forgotten.
        """
        look_up_at = float("inf") if report_by is None else _look_up_at(elapsed_s(), report_by)
        forget = partial(self._forget, message)
        self._pending[message.id] = _Pending(message, outcome, report_by, look_up_at, forget)
        outcome.add_done_callback(forget)

    def accepted(self, messages: Iterable[Message]) -> None:
        """Note that `messages` are committed: from now on they may be looked up."""
        now = elapsed_s()
        for message in messages:
            pending = self._pending.get(message.id)
            if pending is None or pending.checked_at is not None:
                continue
            pending.checked_at = now
            self._committed[message.lane][message.id] = pending
            if pending.report_by is not None:
                heappush(self._deadlines, (pending.look_up_at, message.id))

    def resolve(self, outcomes: Iterable[tuple[Id, Outcome]]) -> bool:
        """Set the futures of `outcomes`; return whether any of them was waited for."""
        now, before = elapsed_s(), len(self._pending)
        for message_id, outcome in outcomes:
            pending = self._pending.get(message_id)
            if pending is None:
                continue
            if pending.report_by is not None and pending.report_by < now and outcome.is_approval:
                continue
            self._forget(pending.message)
            # A callback is a turn of the event loop, which costs more than all of this.
            pending.outcome.remove_done_callback(pending.forget)
            resolve(pending.outcome, outcome)
        return len(self._pending) < before

    def _forget(self, message: Message, _: "Future[Outcome] | None" = None) -> None:
        if self._pending.pop(message.id, None) is not None:
            self._committed[message.lane].pop(message.id, None)

    def note_reply(self) -> None:
        """Note that a reply has arrived, which ends `wait_for_reply`."""
        self.last_reply_at = elapsed_s()
        self._reply_arrived.set()

    async def wait_for_reply(self, timeout_s: float) -> None:
        """Return at the next reply, or after `timeout_s`."""
        self._reply_arrived.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._reply_arrived.wait()

    def take_overdue(self, patience_s: float, limit: int = LOOK_UP_LIMIT) -> list[Message]:
        """Return at most `limit` messages to look up now, and give each another `patience_s`.

        Those whose deadline is near come first, then those of the live lane, of which some of the
        bulk lane keep a tenth free; of each those that were not looked up for longest. So what
        cannot be decided delays no others.
        """
        now = elapsed_s()
        bulk = list(islice(self._unanswered(Lane.BULK, now - patience_s), limit))
        room = limit - min(limit // 10, len(bulk))
        overdue = {each.message.id: each for each in self._take_due(now, room)}
        _fill(overdue, self._unanswered(Lane.LIVE, now - patience_s), room)
        _fill(overdue, bulk, limit)
        for key, pending in overdue.items():
            pending.checked_at = now
            if now >= pending.look_up_at:
                pending.look_up_at = now + _LOOK_UP_AGAIN_S
                heappush(self._deadlines, (pending.look_up_at, key))
            # To the end: they are in the order in which they were looked up, or committed.
            committed = self._committed[pending.message.lane]
            committed[key] = committed.pop(key)
        return [pending.message for pending in overdue.values()]

    def _take_due(self, now: float, limit: int) -> list[_Pending]:
        """Take at most `limit` whose deadline is near, the nearest first."""
        self._drop_deadlines()
        due: list[_Pending] = []
        while len(due) < limit and self._deadlines and self._deadlines[0][0] <= now:
            look_up_at, key = heappop(self._deadlines)
            pending = self._pending.get(key)
            if pending is not None and pending.look_up_at == look_up_at:
                due.append(pending)
        return due

    def _drop_deadlines(self) -> None:
        """Drop those without an effect once they are the most: their time may be years away."""
        if len(self._deadlines) <= 2 * len(self._pending) + LOOK_UP_LIMIT:
            return
        self._deadlines = [
            (pending.look_up_at, key)
            for key, pending in self._pending.items()
            if pending.report_by is not None and pending.checked_at is not None
        ]
        heapify(self._deadlines)

    def _unanswered(self, lane: Lane, until: float) -> Iterator[_Pending]:
        """Yield those of `lane` that were not looked up since `until`."""
        for pending in self._committed[lane].values():
            if pending.checked_at is not None and pending.checked_at > until:
                return
            yield pending

    def abandon(self) -> None:
        """Cancel every future."""
        abandon(pending.outcome for pending in self._pending.values())


def _fill(overdue: dict[Id, _Pending], others: Iterable[_Pending], limit: int) -> None:
    """Add `others` to `overdue`, up to `limit` of them together."""
    for pending in others:
        if len(overdue) >= limit:
            return
        overdue[pending.message.id] = pending


def _look_up_at(now: float, report_by: float) -> float:
    """Return when a message without a reply is looked up in any case: in time to report it."""
    return max((now + report_by) / 2, report_by - _LOOK_UP_BEFORE_S)


def resolve(future: "Future[Outcome]", outcome: Outcome) -> None:
    """Set `future`, unless its caller has stopped waiting."""
    if not future.done():
        future.set_result(outcome)


def fail(futures: "Iterable[Future[Any]]", error: Exception) -> None:
    """Set `error`, as an UnavailableError if it is one, on `futures` whose callers still wait."""
    for future in futures:
        if not future.done():
            future.set_exception(as_unavailable(error))


def abandon(futures: "Iterable[Future[Any]]") -> None:
    """Cancel `futures`; an exception of theirs counts as retrieved, for it was raised already."""
    for future in futures:
        if future.done() and not future.cancelled():
            future.exception()
        future.cancel()
