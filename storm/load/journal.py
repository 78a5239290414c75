"""What callers sent and which answers they received: the callers' side of every promise.

Times are seconds since the epoch by the clock of this machine, which every process of a storm
shares, PostgreSQL too.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from cardledger.ledger.messaging.inbox import Lane
from cardledger.schema.ids import Id

Key = tuple[str, str]
"""Source and reference of an event."""

INBOX: Final = "inbox"
ENQUEUED: Final = "enqueued events"
"""Where an event waits first. Events that wait at one place are decided in their order."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An outcome that a caller received for one attempt."""

    outcome: str
    reason: str | None
    first_outcome: str | None
    at: float
    decide_by: float | None  # Of this attempt.


@dataclass(slots=True)
class Sent:
    """An event with a key of its own, and all attempts to submit it."""

    key: Key
    interface: str
    customer_id: Id
    lane: Lane
    body: Mapping[str, Any]  # Of the first attempt.
    began: float
    is_reuse: bool = False  # Of another event's key, on purpose: it has to be refused.
    queue: str = INBOX
    acknowledged: float | None = None
    attempts: int = 0
    answers: list[Answer] = field(default_factory=list)


@dataclass(slots=True)
class Called:
    """A request over HTTP with an `Idempotency-Key` of its own, or a PATCH."""

    method: str
    path: str
    body: Mapping[str, Any]
    began: float
    statuses: list[int] = field(default_factory=list)  # 0: no answer.
    answer: Mapping[str, Any] | None = None  # Of the first success.
    answered: float | None = None
    refusal: str | None = None  # The body of the answer that ended the attempts.
    last_error: str | None = None  # The body of the last answer that asked for another attempt.


class Journal:
    """Everything that was sent; thread-safe."""

    def __init__(self) -> None:
        """Begin empty."""
        self._guard: Final = threading.Lock()
        self.events: Final[dict[Key, Sent]] = {}
        self.reuses: Final[list[Sent]] = []
        self.calls: Final[list[Called]] = []
        self.errors: Final[dict[str, int]] = {}
        self.stalls: Final[list[tuple[float, float]]] = []
        """When the callers' own event loop stood still and could receive no answer."""

    def add(self, sent: Sent) -> Sent:
        """Note an event before its first attempt."""
        with self._guard:
            if sent.is_reuse:
                self.reuses.append(sent)
            else:
                self.events[sent.key] = sent
        return sent

    def add_call(self, call: Called) -> Called:
        """Note a request before its first attempt."""
        with self._guard:
            self.calls.append(call)
        return call

    def count_error(self, name: str) -> None:
        """Count an attempt that failed with an error that callers have to retry."""
        with self._guard:
            self.errors[name] = self.errors.get(name, 0) + 1

    def stalled_s(self, began: float, ended: float) -> float:
        """Return for how long the callers themselves stood still between two moments."""
        overlaps = (min(ended, until) - max(began, since) for since, until in self.stalls)
        return sum(overlap for overlap in overlaps if overlap > 0)

    def unanswered(self) -> list[str]:
        """Describe every caller that has received no final answer."""
        with self._guard:
            events = [*self.events.values(), *self.reuses]
            silent = [
                f"{sent.interface} {sent.key}: no outcome after {sent.attempts} attempts"
                for sent in events
                if not sent.answers
            ]
            return silent + [
                f"{call.method} {call.path}: {len(call.statuses)} attempts, the last ones"
                f" {call.statuses[-3:]}: {call.last_error}"
                for call in self.calls
                if call.answer is None and call.refusal is None
            ]

    @property
    def answered_by_interface(self) -> dict[str, int]:
        """How many events of each interface have an outcome; requests over HTTP are one of them."""
        with self._guard:
            interfaces = Counter(sent.interface for sent in self.events.values() if sent.answers)
            interfaces["requests over HTTP"] = sum(call.answer is not None for call in self.calls)
        return dict(interfaces)

    @property
    def acknowledged(self) -> int:
        """The number of events that were acknowledged: accepted, or decided."""
        with self._guard:
            events = sum(sent.acknowledged is not None for sent in self.events.values())
            return events + sum(call.answer is not None for call in self.calls)


def seconds_of(moment: str) -> float:
    """Return a time of the wire as seconds since the epoch."""
    return datetime.fromisoformat(moment).timestamp()
