"""Accepted messages whose outcomes callers wait for."""

import asyncio
from asyncio import Future
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
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
    is_accepted: bool = False  # Its commit is known; until then the record cannot answer for it.
    checked_at: float = field(default_factory=elapsed_s)  # When submitted, then last looked up.


class PendingOutcomes:
    """The futures of accepted messages, resolved by a reply over Redis or by a look-up."""

    def __init__(self) -> None:
        self._pending: Final[dict[Id, _Pending]] = {}
        self._reply_arrived: Final = asyncio.Event()
        self.last_reply_at = 0.0  # On the clock of `elapsed_s`.

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(
        self, message: Message, outcome: "Future[Outcome]", report_by: float | None = None
    ) -> None:
        """Wait for the outcome of `message`, which is about to be committed or is committed.

        An approval that arrives after `report_by` is not an outcome any more.
        """
        look_up_at = _look_up_at(elapsed_s(), report_by)
        self._pending[message.id] = _Pending(message, outcome, report_by, look_up_at)

    def accepted(self, messages: Iterable[Message]) -> None:
        """Note that `messages` are committed: from now on they may be looked up."""
        for message in messages:
            pending = self._pending.get(message.id)
            if pending:
                pending.is_accepted = True

    def resolve(self, outcomes: Iterable[tuple[Id, Outcome]]) -> bool:
        """Set the futures of `outcomes`; return whether any of them was waited for."""
        now, before = elapsed_s(), len(self._pending)
        for message_id, outcome in outcomes:
            pending = self._pending.get(message_id)
            if pending is None:
                continue
            if pending.report_by is not None and pending.report_by < now and outcome.is_approval:
                continue
            del self._pending[message_id]
            resolve(pending.outcome, outcome)
        return len(self._pending) < before

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
        due: list[_Pending] = []
        live: list[_Pending] = []
        bulk: list[_Pending] = []
        for pending in self._pending.values():
            if not pending.is_accepted:
                continue
            if now >= pending.look_up_at:
                due.append(pending)
            elif now - pending.checked_at >= patience_s:
                (live if pending.message.lane is Lane.LIVE else bulk).append(pending)
        overdue = [*due, *live][: limit - min(limit // 10, len(bulk))]
        overdue += bulk[: limit - len(overdue)]
        for pending in overdue:
            pending.checked_at = now
            if now >= pending.look_up_at:
                pending.look_up_at = now + _LOOK_UP_AGAIN_S
            # To the end: they are in the order in which they were looked up, or added.
            key = pending.message.id
            self._pending[key] = self._pending.pop(key)
        return [pending.message for pending in overdue]

    def forget_abandoned(self) -> None:
        """Forget the messages whose callers have stopped waiting."""
        for key in [key for key, pending in self._pending.items() if pending.outcome.done()]:
            del self._pending[key]

    def abandon(self) -> None:
        """Cancel every future."""
        abandon(pending.outcome for pending in self._pending.values())


def _look_up_at(now: float, report_by: float | None) -> float:
    """Return when a message without a reply is looked up in any case: in time to report it."""
    if report_by is None:
        return float("inf")
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
