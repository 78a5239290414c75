"""What an attack may do at most, and the comparison with what it did.

Every limit is a `Measure`: a figure that was taken, and the most that it may be. An attack whose
effect was not seen to strike is not a pass: it says nothing about the control.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from benchmarks.results.figures import quantile

SLOWER_LIMIT: Final = 3.0
"""How many times its quiet p99 the p99 of another platform's authorizations may be."""

MEMORY_LIMIT_MB: Final = 200.0
"""By how much the memory of all processes may grow during an attack."""

_SERVER_ERROR: Final = 500

_JUDGEMENTS: Final = frozenset({400, 401, 403, 404, 409, 413, 431})
"""Statuses that refuse a request for what it is, and not for how many there are."""


@dataclass(frozen=True, slots=True)
class Sample:
    """An authorization of the other platform: when it was due, its latency and its answer."""

    due: float
    seconds: float
    status: int  # 0: not answered.
    subject: str = ""  # The card transaction that was answered.
    state: str = ""  # Its status in the answer.


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Latencies and failures of the samples of some time."""

    count: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    failed: int  # Status 5xx, or no answer.
    refused: int  # Any other status that is not 200.
    missing: int = 0  # Were due, and their process has said nothing of them.
    answers: str = ""  # How often it got which status.


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure with its limit; an attack is withstood when none of its measures is above it."""

    name: str
    value: float
    limit: float
    unit: str = ""

    @property
    def holds(self) -> bool:
        """Whether the limit is kept."""
        return self.value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """What an attack did: how often it struck, in words, and what it measured itself."""

    struck: int
    proof: str
    measures: Sequence[Measure] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The judgement about one attack."""

    item: str
    name: str
    aim: str
    seconds: float
    struck: int
    proof: str
    measures: Sequence[Measure] = field(default_factory=tuple)
    error: str | None = None  # Why it could not be played to its end.

    @property
    def broken(self) -> list[Measure]:
        """The measures above their limits."""
        return [measure for measure in self.measures if not measure.holds]

    @property
    def holds(self) -> bool:
        """Whether the attack struck and every limit was kept."""
        return self.error is None and self.struck > 0 and not self.broken


class Refusals:
    """Answers to requests of some kinds, every one of which must be refused."""

    def __init__(self, kinds: Collection[str]) -> None:
        """Begin with no answer to any of `kinds`."""
        self._kinds: Final = frozenset(kinds)
        self._statuses: Final[defaultdict[str, Counter[int]]] = defaultdict(Counter)

    def note(self, kind: str, status: int) -> None:
        """Count an answer to a request of `kind`; 0: not answered."""
        self._statuses[kind][status] += 1

    def strike(self, *measures: Measure) -> Strike:
        """Return what the attack did.

        A kind that was never refused for what it is says nothing about the control: a request above
        a limit of rates is refused by another one.
        """
        answered = Counter[int]()
        for counts in self._statuses.values():
            answered.update({status: count for status, count in counts.items() if status})
        succeeded = self._kinds_with(range(200, 300))
        judged = self._kinds_with(_JUDGEMENTS)
        proof = f"{answered.total():,} requests of {len(self._kinds)} kinds"
        return Strike(
            struck=answered.total(),
            proof=f"{proof}; succeeded: {', '.join(sorted(succeeded))}" if succeeded else proof,
            measures=[
                Measure(name="kinds of requests that succeeded", value=len(succeeded), limit=0),
                Measure(
                    name="kinds of requests not judged",
                    value=len(self._kinds - judged - succeeded),
                    limit=0,
                ),
                Measure(
                    name="answers 5xx",
                    value=sum(count for status, count in answered.items() if status >= 500),
                    limit=0,
                ),
                *measures,
            ],
        )

    def _kinds_with(self, statuses: Collection[int]) -> set[str]:
        return {
            kind
            for kind, counts in self._statuses.items()
            if any(status in statuses for status in counts)
        }


def due(rate: float, began: float, ended: float) -> int:
    """Return how many samples of `rate` a second are due at least between two times."""
    # A moment less: times are sums of floats.
    return max(0, math.floor(rate * (ended - began) - 0.001))


def figures(samples: Sequence[Sample], *, wanted: int = 0) -> Figures:
    """Return the figures of `samples`, of which at least `wanted` were to be taken."""
    answered = [sample.seconds for sample in samples if sample.status]
    failed = sum(sample.status == 0 or sample.status >= _SERVER_ERROR for sample in samples)
    return Figures(
        count=len(samples),
        p50_ms=quantile(answered, 0.5) * 1000 if answered else 0.0,
        p99_ms=quantile(answered, 0.99) * 1000 if answered else 0.0,
        longest_ms=max(answered, default=0.0) * 1000,
        failed=failed,
        refused=sum(
            0 < sample.status < _SERVER_ERROR and sample.status != 200 for sample in samples
        ),
        missing=max(0, wanted - len(samples)),
        answers=statuses_in_words(Counter(sample.status for sample in samples)),
    )


def statuses_in_words(statuses: Mapping[int, int]) -> str:
    """Return the statuses and how often each was answered; 0: not answered."""
    counts = sorted(statuses.items())
    return ", ".join(f"{count:,} x {status or 'no answer'}" for status, count in counts)


def quiet_p99_ms(windows: Sequence[Figures]) -> float:
    """Return the quiet p99 of a run, the median of its quiet times.

    So one that a disturbance of the machine has spoilt does not raise every limit.
    """
    return median(window.p99_ms for window in windows)


def of_victim(
    victim: Figures, quiet_ms: float, *, longest_ms: float | None = None
) -> list[Measure]:
    """Return the measures of the other platform's authorizations during an attack.

    With `longest_ms` the longest wait has that limit, in the place of the p99.
    """
    slow = (
        Measure(
            name="other platform's p99",
            value=victim.p99_ms,
            limit=SLOWER_LIMIT * quiet_ms,
            unit="ms",
        )
        if longest_ms is None
        else Measure(name="longest decision", value=victim.longest_ms, limit=longest_ms, unit="ms")
    )
    return [
        slow,
        Measure(name="other platform's 5xx or unanswered", value=victim.failed, limit=0),
        Measure(name="other platform's refusals", value=victim.refused, limit=0),
        # Without samples all else would hold.
        Measure(name="other platform's samples missing", value=victim.missing, limit=0),
        Measure(name="times without samples", value=0 if victim.count else 1, limit=0),
    ]


def of_memory(before_mb: float, during_mb: float) -> Measure:
    """Return the measure of the growth of all processes."""
    growth = max(0.0, during_mb - before_mb)
    return Measure(name="memory added", value=growth, limit=MEMORY_LIMIT_MB, unit="MB")


def of_processes(before: Mapping[str, int], after: Mapping[str, int]) -> Measure:
    """Return the measure of the processes that have ended by themselves: 0 at most.

    An attack that ends a process is not withstood, however quickly the next one takes its place.
    """
    ended = sorted(name for name in before if after.get(name) != before[name])
    name = f"processes that ended {ended or ''}".strip()
    return Measure(name=name, value=len(ended), limit=0)
