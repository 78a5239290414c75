"""Admission control: refuse authorizations that could not be decided by their deadline.

A queue without a bound helps no caller: at twice the capacity every authorization would be
decided after its deadline, and each decision would be of no use to its caller. What has happened
at the network, a clearing for example, is never refused.
"""

from asyncio import Future
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any, Final

from cardledger.schema.wire.network_events import AUTHORIZATIONS, parse_time
from cardledger.workers.client.errors import OverloadedError
from cardledger.workers.client.parsing import MalformedSubmission, Submission

ALWAYS_ADMITTED: Final = 100
"""Undecided events of one process below which none is refused: no queue to speak of."""

UNDECIDED_LIMIT: Final = 20_000
"""Undecided events of one process above which no authorization is accepted, whatever its deadline;
at about 2 kB each."""

_RATE_WINDOW_S: Final = 1.0
_WAIT_SHARE: Final = 0.5  # Of the time left: the rate of decisions is not constant.
_QUEUE_SHARE: Final = 0.125  # Of the time left: how long events wait before it counts as a queue.

Clock = Callable[[], float]


class Admission:
    """The undecided events of one process in the live lane, and how fast outcomes arrive.

    An event waits as long as those before it take: their number over the number of outcomes in
    the last second. Of several processes, each sees its own part of both.
    """

    def __init__(self, *, now: Callable[[], datetime], clock: Clock = monotonic) -> None:
        """Measure with `clock`, in seconds; `now` is the time by which `decideBy` passes."""
        self._now: Final = now
        self._clock: Final = clock
        # When the latest events were submitted, as many as are undecided. While events are decided
        # in their order, these are the undecided ones; one that waits for a locked account does not
        # make the queue look old.
        self._submitted: Final[deque[float]] = deque()
        self._decided: Final[deque[float]] = deque()  # In the last second.

    def admit(self, batch: Sequence[Submission | MalformedSubmission]) -> None:
        """Count `batch`, whose events were submitted together, until each has its outcome.

        Raises: OverloadedError when it has authorizations only, and one of them would wait for more
        than half of its time until `decideBy`; nothing is counted then.
        """
        if len(self._submitted) >= ALWAYS_ADMITTED:
            self._refuse_late(batch)
        for item in batch:
            self._submitted.append(self._clock())
            item.outcome.add_done_callback(partial(self._note_outcome, item))

    def wait_s(self) -> float:
        """Return how long an event that comes now will wait, in seconds."""
        now = self._clock()
        decided = self._decided
        while decided and now - decided[0] > _RATE_WINDOW_S:
            decided.popleft()
        if not decided:
            return float("inf") if self._submitted else 0.0
        return len(self._submitted) * _RATE_WINDOW_S / len(decided)

    def _refuse_late(self, batch: Sequence[Submission | MalformedSubmission]) -> None:
        bodies = [item.body for item in batch if isinstance(item, Submission)]
        if len(bodies) < len(batch) or any(body["type"] not in AUTHORIZATIONS for body in bodies):
            return
        deadlines = [parse_time(body["decideBy"]) for body in bodies if body.get("decideBy")]
        now = self._now()
        left_s = min(
            ((deadline - now).total_seconds() for deadline in deadlines if deadline), default=None
        )
        queued_s = self._clock() - self._submitted[0]
        if len(self._submitted) >= UNDECIDED_LIMIT or (
            left_s is not None
            # Right after a quiet time the rate says nothing: there were few events to decide.
            and queued_s > left_s * _QUEUE_SHARE
            and self.wait_s() > left_s * _WAIT_SHARE
        ):
            raise OverloadedError(f"{len(self._submitted)} events are undecided")

    def _note_outcome(self, item: Submission | MalformedSubmission, outcome: "Future[Any]") -> None:
        self._submitted.popleft()
        if outcome.cancelled() or outcome.exception() is not None:
            return
        if isinstance(item, Submission) and item.report_by and self._clock() >= item.report_by:
            return  # Its deadline has ended the wait: that says nothing about the engine's speed.
        if len(self._decided) >= UNDECIDED_LIMIT:
            self._decided.popleft()
        self._decided.append(self._clock())
