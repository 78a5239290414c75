"""Events as requests: lines of NDJSON, as many as one request may have.

Pure: nothing here sends anything, and the time is passed in.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from math import inf
from typing import Final

from cardledger_client.deadlines import Answer, passed
from cardledger_client.errors import INVALID_RESPONSE, NO_RESPONSE, Error
from cardledger_client.resources import Event, Lane, Outcome
from cardledger_client.responses import json_of, outcome_of

MAX_EVENTS: Final = 10_000
"""Events of a request."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a request."""

LIVE_EVENTS: Final = 20
"""Events of a request in the live lane."""

_AUTHORIZATIONS: Final = frozenset(
    {
        "AUTHORIZATION",
        "AUTHORIZATION_INCREMENT",
        "CREDIT_AUTHORIZATION",
        "FINANCIAL_AUTHORIZATION",
    }
)
# A malformed event is rejected; until the rejection is recorded, it is accepted only.
_OF_ANY_INPUT: Final = frozenset({"REJECTED", "ACCEPTED"})
_REFERENCE_LENGTH: Final = 255  # Characters of a reference that the server returns.
_MESSAGE_LENGTH: Final = 700  # Characters; an event may have a reference of any length.
_GRACE_S: Final = 1.0  # For a decline that the server returns at the deadline.


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An event as it is sent, and until when its network waits for the outcome."""

    content: bytes
    reference: object
    decide_by: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The events of one request."""

    lane: Lane
    lines: Sequence[Line]


def batches(events: Iterable[Event], lane: Lane | None) -> Iterator[Batch]:
    """Yield `events` in their order, in batches of one lane.

    Without `lane`, their number decides: there is no order between lanes, so it is one for all.
    Raises: ValueError, TypeError for an event that is not JSON.
    """
    iterator = iter(events)
    first = list(islice(iterator, LIVE_EVENTS + 1))
    chosen: Lane = lane or ("LIVE" if len(first) <= LIVE_EVENTS else "BULK")
    limit = LIVE_EVENTS if chosen == "LIVE" else MAX_EVENTS
    part: list[Line] = []
    size = 0
    for event in chain(first, iterator):
        line = _line(event)
        length = len(line.content) + 1
        if part and (len(part) == limit or size + length > MAX_BYTES):
            yield Batch(lane=chosen, lines=part)
            part, size = [], 0
        part.append(line)
        size += length
    if part:
        yield Batch(lane=chosen, lines=part)


def encoded(event: Event) -> bytes:
    """Return `event` as one line of JSON.

    Raises: ValueError, TypeError when it is not JSON, or not a mapping.
    """
    if not isinstance(event, Mapping):  # One event in the place of a list gives its keys.
        raise TypeError(f"an event is a mapping, not {type(event).__name__}; pass a list of events")
    return json.dumps(dict(event), separators=(",", ":"), allow_nan=False).encode()


def _line(event: Event) -> Line:
    return Line(
        content=encoded(event), reference=event.get("reference"), decide_by=_decide_by(event)
    )


def _decide_by(event: Event) -> datetime | None:
    """Return the deadline of an authorization; None where the server will find none either."""
    value = event.get("decideBy")
    if event.get("type") not in _AUTHORIZATIONS or not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.upper())  # RFC 3339 has t and z, too.
    except ValueError:
        return None
    return moment if moment.tzinfo else None


class Pending:
    """A batch whose outcomes arrive: those that have none are sent again after a failure.

    That is safe: `source` and `reference` of an event are its permanent idempotency key. Only an
    authorization whose `decideBy` has passed is not sent again: its network does not wait for the
    outcome any more.
    """

    def __init__(self, batch: Batch, *, began: datetime) -> None:
        """Begin; deadlines before the call `began` are the engine's concern alone."""
        self.lane: Final = batch.lane
        self._lines: Final = batch.lines
        self._began: Final = began
        self._place = 0

    @property
    def is_complete(self) -> bool:
        """Whether every event has its outcome."""
        return self._place == len(self._lines)

    @property
    def content(self) -> bytes:
        """The events without an outcome, one a line."""
        return b"\n".join(line.content for line in self._rest)

    def take(self, content: bytes) -> Answer:
        """Return the next outcome, which has arrived as a line with `content`.

        Raises: Error INVALID_RESPONSE.
        """
        outcome = outcome_of(json_of(content))
        if self.is_complete:
            raise Error(INVALID_RESPONSE, "more outcomes than events")
        line = self._lines[self._place]
        if not _is_of(outcome, line):
            message = f"outcome of {outcome.reference!r} in the place of {line.reference!r}"
            raise Error(INVALID_RESPONSE, message[:_MESSAGE_LENGTH])
        self._place += 1
        return Answer(outcome=outcome, report_by=self._deadline(line, outcome))

    def repeat(self, *, now: datetime) -> None:
        """Note that the rest is sent again at `now`.

        Raises: Error DECIDE_BY_PASSED when an authorization among it must not be.
        """
        late = [
            line.reference
            for line in self._rest
            if line.decide_by and self._began < line.decide_by <= now
        ]
        if late:
            raise passed(late)

    def patience_s(self, limit_s: float, *, now: datetime) -> float:
        """Return how long to wait for a response: `limit_s`, or less because of a deadline.

        The grace after a deadline is for outcomes that are no approvals: those are returned later,
        too. A deadline that has passed limits nothing: the first attempt comes too late for it.
        """
        return min(limit_s, self._left_s(now, after=now) + _GRACE_S)

    def pause_s(self, delay_s: float, *, now: datetime) -> float:
        """Return how long to wait before `repeat`: `delay_s`, or until a deadline passes."""
        return min(delay_s, self._left_s(now, after=self._began))

    def incomplete(self) -> Error:
        """Return the error of a response that has ended before the last outcome."""
        missing = len(self._lines) - self._place
        message = f"the response ended with {missing} outcomes missing"
        return Error(NO_RESPONSE, message, may_retry=True)

    @property
    def _rest(self) -> Sequence[Line]:
        """The events without an outcome."""
        return self._lines[self._place :]

    def _deadline(self, line: Line, outcome: Outcome) -> datetime | None:
        """Return until when `outcome` may be reported; None when there is no such time."""
        if not outcome.is_approval or line.decide_by is None or line.decide_by <= self._began:
            return None
        return line.decide_by

    def _left_s(self, now: datetime, *, after: datetime) -> float:
        """Return the seconds until the first deadline `after` a time; infinity without one."""
        deadlines = [
            line.decide_by for line in self._rest if line.decide_by and line.decide_by > after
        ]
        return max(0.0, (min(deadlines) - now).total_seconds()) if deadlines else inf


def _is_of(outcome: Outcome, line: Line) -> bool:
    """Return whether `outcome` is one of the event in `line`, as far as its reference says."""
    if outcome.outcome not in _OF_ANY_INPUT:
        return outcome.reference == line.reference
    # The server cuts a reference that is too long, and returns none where it cannot read the event,
    # or cannot store its reference.
    if outcome.reference is None:
        return True
    sent = line.reference
    return isinstance(sent, str) and outcome.reference == sent[:_REFERENCE_LENGTH]
