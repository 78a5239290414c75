"""What counts and measures in a process, for several threads.

A batch is counted with one call: the lock is taken once, whatever the number of its messages.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple, Protocol

from cardledger.workers.metrics.families import Family

Labels = tuple[str, ...]
"""The values of a family's labels, in their order."""


class Sample(NamedTuple):
    """A number, under the name of its family with a `suffix`; `bound` is that of a bucket."""

    labels: Labels
    value: float
    suffix: str = ""
    bound: str | None = None


Reading = tuple[Family, Sequence[Sample]]
"""The samples of a family now."""


class Source(Protocol):
    """Where samples come from."""

    def read(self) -> Iterator[Reading]:
        """Yield families with their samples."""


class Counts:
    """A counter."""

    def __init__(self, family: Family, *initial: Labels) -> None:
        """Begin at zero for the labels `initial`; other labels begin when they are counted."""
        self._family: Final = family
        self._lock: Final = Lock()
        self._numbers: Final[dict[Labels, int]] = dict.fromkeys(initial, 0)

    def add(self, *labels: str, number: int = 1) -> None:
        """Count `number` more with these labels."""
        self.add_all({labels: number})

    def add_all(self, numbers: Mapping[Labels, int]) -> None:
        """Count `numbers` more, by labels."""
        with self._lock:
            for labels, number in numbers.items():
                self._numbers[labels] = self._numbers.get(labels, 0) + number

    def read(self) -> Iterator[Reading]:
        """Yield the counts so far."""
        with self._lock:
            numbers = list(self._numbers.items())
        yield self._family, [Sample(labels, number) for labels, number in numbers]


@dataclass(slots=True)
class _Series:
    counts: list[int]  # Of each bucket by itself, and of those above the last bound.
    total: float = 0.0


class Histogram:
    """How values are distributed among the buckets of a family."""

    def __init__(self, family: Family, *initial: Labels) -> None:
        """Begin without values for the labels `initial`, and for others when they are observed."""
        self._family: Final = family
        self._bounds: Final = family.buckets
        self._lock: Final = Lock()
        self._series: Final[dict[Labels, _Series]] = {labels: self._empty() for labels in initial}

    def observe(self, *labels: str, value: float) -> None:
        """Count one value."""
        self.observe_all(labels, (value,))

    def observe_all(self, labels: Labels, values: Iterable[float]) -> None:
        """Count `values`."""
        found, bounds = self._empty(), self._bounds
        counts, total = found.counts, 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            total += value
        with self._lock:
            series = self._series.setdefault(labels, found)
            if series is found:
                found.total = total
                return
            series.total += total
            for bucket, count in enumerate(counts):
                series.counts[bucket] += count

    def read(self) -> Iterator[Reading]:
        """Yield the buckets, each with those below, and sums and counts."""
        with self._lock:
            series = {key: (each.counts.copy(), each.total) for key, each in self._series.items()}
        yield (
            self._family,
            [sample for key, each in series.items() for sample in self._samples(key, *each)],
        )

    def _samples(self, labels: Labels, counts: Sequence[int], total: float) -> Iterator[Sample]:
        below = 0
        for bound, count in zip([*map(str, self._bounds), "+Inf"], counts, strict=True):
            below += count
            yield Sample(labels, below, "_bucket", bound)
        yield Sample(labels, below, "_count")
        yield Sample(labels, total, "_sum")

    def _empty(self) -> _Series:
        return _Series([0] * (len(self._bounds) + 1))


class Gauge:
    """A number that is read when it is asked for; None: there is none."""

    def __init__(self, family: Family, value: Callable[[], float | None], *labels: str) -> None:
        self._family: Final = family
        self._value: Final = value
        self._labels: Final = labels

    def read(self) -> Iterator[Reading]:
        """Yield the number now."""
        value = self._value()
        yield self._family, [] if value is None else [Sample(self._labels, value)]
