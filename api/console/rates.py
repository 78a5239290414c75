"""Rates of the last quarter of an hour, in memory, of platforms whose console is looked at.

They are sampled by looks at them, never by what decides: a look reads the newest intervals, whose
decisions may have been committed since the last look, and keeps the others. What one cannot read
within its limits is a gap, which the looks after it fill piece by piece: until then its intervals
are unknown. A process remembers few platforms.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.rate_limits import remember
from cardledger.ledger.queries.console import platform_rates
from cardledger.ledger.queries.console.platform_rates import INTERVAL_S, Counted
from cardledger.ledger.storage.engines import UNAVAILABLE_ERRORS, is_cancelled
from cardledger.ledger.storage.snapshot_connections import limited
from cardledger.schema.ids import Id

WINDOW: Final = timedelta(minutes=15)
"""The time that is remembered."""

LOOK_LIMIT_MS: Final = 500
"""How long each statement of a look may take."""

_PLACES: Final = int(WINDOW.total_seconds()) // INTERVAL_S
_READ_AGAIN: Final = 3  # Intervals; what is committed, or reaches a replica, later is not counted.
_PLATFORMS: Final = 100


class _Reader(Protocol):
    async def __call__(
        self,
        connection: AsyncConnection,
        *,
        platform_id: Id,
        since: datetime,
        before: Any = None,  # noqa: ANN401 - a `Counted.begin` of the same reader
    ) -> Counted: ...


@dataclass(slots=True)
class _Gap:
    """Intervals that are not read, or in part; their other rows are before `before`, if known."""

    begin: int
    end: int  # Exclusive.
    before: int | Id | None


@dataclass(slots=True)
class _Series:
    """What is known of the intervals by what one reader has counted."""

    numbers: dict[int, dict[str, int]] = field(default_factory=dict)
    next_place: int = 0  # The first interval that has not ended when it was read.
    gap: _Gap | None = None

    def begin(self, places: range) -> int:
        """Return the one of `places` from which a look reads."""
        return max(places[0], self.next_place - _READ_AGAIN)

    def renew(self, found: Counted, places: range) -> None:
        """Replace what a look at the newest of `places` has read whole."""
        known = max(self.next_place, places[0])
        begin = self.begin(places)
        if not found.is_whole:
            begin = max(begin, _after(found.reached_at, places))
        if begin > known:
            # One gap: what is known between two of them is read again.
            start = min(self.gap.begin, known) if self.gap else known
            self.gap = _Gap(start, begin, found.begin)
            begin = start
        elif self.gap:
            self.gap.end = min(self.gap.end, begin)
        self._drop(begin)
        self._add(found.numbers, begin, places.stop)
        self._go_on(places)

    def fill(self, found: Counted, places: range) -> None:
        """Add what was read of the gap."""
        assert self.gap is not None, "only a gap is filled"
        self._add(found.numbers, self.gap.begin, self.gap.end)
        self.gap.before = found.begin
        self.gap.end = min(self.gap.end, _after(found.reached_at, places))
        if found.is_whole:
            self.gap = None
        self._go_on(places)

    def lose(self, places: range) -> None:
        """Know nothing from the last look on: a look has failed, and the next one reads little."""
        start = max(self.next_place, places[0])
        start = min(self.gap.begin, start) if self.gap else start
        self.gap = _Gap(start, places.stop, None)
        self._drop(start)
        self._go_on(places)

    def is_known(self, place: int) -> bool:
        """Return whether all of an interval was counted."""
        return self.gap is None or not self.gap.begin <= place < self.gap.end

    def _add(self, numbers: Mapping[int, Mapping[str, int]], begin: int, end: int) -> None:
        for place, counted in numbers.items():
            if begin <= place < end:
                kept = self.numbers.setdefault(place, {})
                for name, number in counted.items():
                    kept[name] = kept.get(name, 0) + number

    def _drop(self, begin: int) -> None:
        self.numbers = {place: kept for place, kept in self.numbers.items() if place < begin}

    def _go_on(self, places: range) -> None:
        """Forget what is before `places`."""
        self.numbers = {place: kept for place, kept in self.numbers.items() if place in places}
        self.next_place = places[-1]
        if self.gap:
            self.gap.begin = max(self.gap.begin, places[0])
            if self.gap.begin >= self.gap.end:
                self.gap = None


_READERS: Final[dict[str, _Reader]] = {
    "decisions": platform_rates.decisions,
    "rejections": platform_rates.rejections,
    "deliveries": platform_rates.deliveries,
}

_Kept = Mapping[str, _Series]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many there were in each interval, the oldest first; the last one has not ended.

    None: an interval whose rows were not all read.
    """

    title: str
    counts: Sequence[int | None]

    @property
    def per_second(self) -> float | None:
        """The mean of the last interval that has ended."""
        count = self.counts[-2]
        return None if count is None else count / INTERVAL_S

    @property
    def total(self) -> int:
        """How many there were in the whole time, as far as it is known."""
        return sum(self._known)

    @property
    def greatest(self) -> int:
        """The largest count, at least 1."""
        return max([1, *self._known])

    @property
    def unknown_s(self) -> int:
        """The seconds of the intervals that are not known."""
        return INTERVAL_S * (len(self.counts) - len(self._known))

    @property
    def _known(self) -> list[int]:
        return [count for count in self.counts if count is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates of a platform, and its decisions by outcome."""

    decisions: Rate
    webhooks: Rate
    outcomes: Sequence[tuple[str, int]]


class RateMemory:
    """The rates that this process remembers."""

    def __init__(self) -> None:
        """Remember none yet."""
        self._kept: Final[OrderedDict[Id, _Kept]] = OrderedDict()

    async def look(self, connection: AsyncConnection, platform_id: Id, now: datetime) -> Rates:
        """Return the rates of the last quarter of an hour, after reading what is new."""
        last = int(now.timestamp()) // INTERVAL_S
        places = range(last - _PLACES + 1, last + 1)
        kept = self._kept.get(platform_id) or {name: _Series() for name in _READERS}
        remember(self._kept, platform_id, kept, limit=_PLATFORMS)
        had_gaps = [name for name, series in kept.items() if series.gap]
        await _renew(connection, platform_id, kept, places)
        for name in had_gaps:  # Not in the look that leaves one, which reads enough.
            await _fill(connection, platform_id, _READERS[name], kept[name], places)
        return _rates(kept, places)


async def _renew(connection: AsyncConnection, platform_id: Id, kept: _Kept, places: range) -> None:
    """Read the newest intervals."""
    try:
        async with limited(connection, LOOK_LIMIT_MS):
            found = {
                # From one interval earlier: an older row says that all of the others were read.
                name: await _READERS[name](
                    connection, platform_id=platform_id, since=_begin_of(series.begin(places) - 1)
                )
                for name, series in kept.items()
            }
    except UNAVAILABLE_ERRORS as error:
        if not is_cancelled(error):
            raise
        for series in kept.values():
            series.lose(places)
    else:
        for name, series in kept.items():
            series.renew(found[name], places)


async def _fill(
    connection: AsyncConnection, platform_id: Id, read: _Reader, series: _Series, places: range
) -> None:
    """Read a piece of the gap, if there is one that can be filled."""
    gap = series.gap
    if gap is None or gap.before is None:
        return
    try:
        async with limited(connection, LOOK_LIMIT_MS):
            found = await read(
                connection,
                platform_id=platform_id,
                since=_begin_of(gap.begin),
                before=gap.before,
            )
    except UNAVAILABLE_ERRORS as error:
        if not is_cancelled(error):
            raise
        gap.before = None
    else:
        series.fill(found, places)


def _begin_of(place: int) -> datetime:
    return datetime.fromtimestamp(place * INTERVAL_S, UTC)


def _after(reached_at: datetime | None, places: range) -> int:
    """Return the first interval of which all rows were read; None: of no interval."""
    return places.stop if reached_at is None else int(reached_at.timestamp()) // INTERVAL_S + 1


def _rates(kept: _Kept, places: range) -> Rates:
    decisions = [kept["decisions"], kept["rejections"]]
    return Rates(
        decisions=Rate(title="Decisions", counts=_counts(decisions, places)),
        webhooks=Rate(title="Webhooks delivered", counts=_counts([kept["deliveries"]], places)),
        outcomes=_outcomes(decisions, places),
    )


def _counts(parts: Sequence[_Series], places: range) -> list[int | None]:
    return [
        sum(sum(series.numbers.get(place, {}).values()) for series in parts)
        if all(series.is_known(place) for series in parts)
        else None
        for place in places
    ]


def _outcomes(parts: Sequence[_Series], places: range) -> list[tuple[str, int]]:
    """Return how many there were of each outcome in the intervals that are known."""
    outcomes: dict[str, int] = {}
    known = [place for place in places if all(series.is_known(place) for series in parts)]
    for series in parts:
        for place in known:
            for outcome, count in series.numbers.get(place, {}).items():
                outcomes[outcome] = outcomes.get(outcome, 0) + count
    return sorted(outcomes.items(), key=lambda item: -item[1])
