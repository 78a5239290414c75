"""Admission control: refuse authorizations that could not be decided by their deadline.

A queue without a bound helps no caller: at twice the capacity every authorization would be
decided after its deadline, and each decision would be of no use to its caller. What has happened
at the network, a clearing for example, is never refused.
"""

from asyncio import Future
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from typing_extensions import TypeIs

from cardledger.ledger.storage.database_clock import elapsed_s
from cardledger.schema.wire.network_events import AUTHORIZATIONS, parse_time
from cardledger.workers.client.errors import OverloadedError
from cardledger.workers.client.parsing import MalformedSubmission, Submission

ALWAYS_ADMITTED: Final = 100
"""Undecided events of one process below which none is refused: no queue to speak of."""

UNDECIDED_LIMIT: Final = 20_000
"""Undecided events of one process, without those overtaken, above which no authorization is
accepted, whatever its deadline; at about 2 kB each. What was overtaken is limited by platform."""

_RATE_WINDOW_S: Final = 1.0
_WAIT_SHARE: Final = 0.5  # Of the time left: the rate of decisions is not constant.
_QUEUE_SHARE: Final = 0.125  # Of the time left: how long events wait before it counts as a queue.
_OVERTAKEN_S: Final = 5.0  # More than fair turns of platforms and queues let an event be overtaken.

Clock = Callable[[], float]


class Admission:
    """The undecided events of one process in the live lane, and how fast outcomes arrive.

    An event waits as long as those before it take: their number over the number of outcomes in
    the last second. Of several processes, each sees its own part of both. Events of a cardholder
    who is locked or stalled delay no others: what was overtaken long ago is not counted.
    """

    def __init__(self, *, now: Callable[[], datetime], clock: Clock = elapsed_s) -> None:
        """Measure with `clock`, in seconds; `now` is the time by which `decideBy` passes."""
        self._now: Final = now
        self._clock: Final = clock
        # When the undecided events were submitted, in this order, without those overtaken. In a
        # dict, to find the first after many were removed takes as long as they are many.
        self._queue: Final[OrderedDict[Future[Any], float]] = OrderedDict()
        self._decided: Final[deque[float]] = deque()  # In the last second.
        self._tried_at = float("-inf")  # When the last authorizations were admitted.

    def admit(self, batch: Sequence[Submission | MalformedSubmission]) -> None:
        """Count `batch`, whose events were submitted together, until each has its outcome.

        Raises: OverloadedError when it has authorizations only, and one of them would wait for more
        than half of its time until `decideBy`; nothing is counted then.
        """
        now = self._clock()
        bodies = _authorizations(batch)
        if bodies:
            if len(self._queue) >= ALWAYS_ADMITTED:
                self._refuse_late(bodies, now)
            self._tried_at = now
        for item in batch:
            self._queue[item.outcome] = now
            item.outcome.add_done_callback(partial(self._note_outcome, item))

    def refuse_unread(self, events: Sequence[object]) -> None:
        """Refuse `events` as `admit` would do, before they are read: that takes longer.

        At several times the capacity, a process that validates what it refuses has no time left for
        what it has admitted. Raises: OverloadedError.
        """
        if len(self._queue) < ALWAYS_ADMITTED:
            return
        bodies = [event for event in events if _is_authorization(event)]
        if len(bodies) == len(events):
            self._refuse_late(bodies, self._clock())

    def wait_s(self) -> float:
        """Return how long an event that comes now will wait, in seconds."""
        now = self._clock()
        decided = self._decided
        while decided and now - decided[0] > _RATE_WINDOW_S:
            decided.popleft()
        if not decided:
            return float("inf") if self._queue else 0.0
        return len(self._queue) * _RATE_WINDOW_S / len(decided)

    def _refuse_late(self, bodies: Sequence[Mapping[str, Any]], now: float) -> None:
        if len(self._queue) >= UNDECIDED_LIMIT:
            self._refuse()
        deadlines = [_deadline(body.get("decideBy")) for body in bodies]
        at = self._now()
        left_s = min(
            ((deadline - at).total_seconds() for deadline in deadlines if deadline), default=None
        )
        if left_s is None:
            return
        # Right after a quiet time the rate says nothing: there were few events to decide.
        queued_s = now - next(iter(self._queue.values()))
        if queued_s <= left_s * _QUEUE_SHARE:
            return
        wait_s = self.wait_s()
        # While nothing is decided, one authorization a second shows whether the engine decides
        # again: those before it may all be of one cardholder.
        is_trial = wait_s == float("inf") and now - self._tried_at > _RATE_WINDOW_S
        if wait_s > left_s * _WAIT_SHARE and not is_trial:
            self._refuse()

    def _refuse(self) -> None:
        raise OverloadedError(f"{len(self._queue)} events are undecided")

    def _note_outcome(self, item: Submission | MalformedSubmission, outcome: "Future[Any]") -> None:
        submitted = self._queue.pop(outcome, None)
        if outcome.cancelled() or outcome.exception() is not None:
            return
        now = self._clock()
        if isinstance(item, Submission) and item.report_by and now >= item.report_by:
            return  # Its deadline has ended the wait: that says nothing about the engine's speed.
        if submitted is not None:
            self._leave_out(before=submitted - _OVERTAKEN_S)
        if len(self._decided) >= UNDECIDED_LIMIT:
            self._decided.popleft()
        self._decided.append(now)

    def _leave_out(self, *, before: float) -> None:
        """Leave events out of the queue that were submitted `before`: later ones are decided."""
        while self._queue:
            first = next(iter(self._queue))
            if self._queue[first] >= before:
                return
            del self._queue[first]


def _is_authorization(event: object) -> TypeIs[Mapping[str, Any]]:
    kind = event.get("type") if isinstance(event, Mapping) else None
    return isinstance(kind, str) and kind in AUTHORIZATIONS


def _deadline(decide_by: object) -> datetime | None:
    """Return the deadline that an event names; None when it names none, or an invalid one."""
    if not isinstance(decide_by, str):
        return None
    try:
        return parse_time(decide_by)
    except ValueError:
        return None


def _authorizations(
    batch: Sequence[Submission | MalformedSubmission],
) -> Sequence[Mapping[str, Any]]:
    """Return the bodies of `batch` if all are authorizations: what has happened is not refused."""
    bodies = [item.body for item in batch if isinstance(item, Submission)]
    if len(bodies) < len(batch) or any(body["type"] not in AUTHORIZATIONS for body in bodies):
        return ()
    return bodies
