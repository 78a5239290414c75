"""Rates of the last quarter of an hour, in memory, of platforms whose console is looked at.

They are sampled by looks at them, never by what decides: a look reads the newest intervals, whose
decisions may have been committed since the last look, and keeps the others. A process remembers few
platforms.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.api.http.rate_limits import remember
from cardledger.ledger.queries.console import platform_figures
from cardledger.ledger.queries.console.platform_figures import INTERVAL_S
from cardledger.ledger.storage.engines import UNAVAILABLE_ERRORS, is_cancelled
from cardledger.schema.ids import Id

WINDOW: Final = timedelta(minutes=15)
"""The time that is remembered."""

_PLACES: Final = int(WINDOW.total_seconds()) // INTERVAL_S
_READ_AGAIN: Final = 3  # Intervals; what is committed, or reaches a replica, later is not counted.
_PLATFORMS: Final = 100


@dataclass(slots=True)
class _Kept:
    decisions: dict[int, Mapping[str, int]] = field(default_factory=dict)
    delivered: dict[int, int] = field(default_factory=dict)
    next_place: int = 0  # The first interval that has not been read whole.
    decisions_capped: int = 0  # The last interval that a look could not read whole.
    delivered_capped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many there were in each interval, the oldest first; the last one has not ended.

    `is_capped`: there were at least so many; not all could be read.
    """

    title: str
    counts: Sequence[int]
    is_capped: bool

    @property
    def per_second(self) -> float:
        """The mean of the last interval that has ended."""
        return self.counts[-2] / INTERVAL_S

    @property
    def total(self) -> int:
        """How many there were in the whole time."""
        return sum(self.counts)

    @property
    def greatest(self) -> int:
        """The largest count, at least 1."""
        return max(1, *self.counts)


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
        first = last - _PLACES + 1
        kept = self._kept.get(platform_id) or _Kept()
        remember(self._kept, platform_id, kept, limit=_PLATFORMS)
        begin = max(first, kept.next_place - _READ_AGAIN)
        try:
            found = await platform_figures.counts(
                connection,
                platform_id=platform_id,
                since=datetime.fromtimestamp((begin - 1) * INTERVAL_S, UTC),
            )
        except UNAVAILABLE_ERRORS as error:
            if not is_cancelled(error):
                raise
            kept.decisions_capped = kept.delivered_capped = last
            _renew(kept.decisions, {}, last + 1, first)
            _renew(kept.delivered, {}, last + 1, first)
        else:
            if found.are_decisions_capped:
                kept.decisions_capped = last
            if found.are_deliveries_capped:
                kept.delivered_capped = last
            _renew(kept.decisions, found.decisions, begin, first)
            _renew(kept.delivered, found.delivered, begin, first)
        # Also when it was cancelled: the next look reads a few intervals only.
        kept.next_place = last
        return _rates(kept, range(first, last + 1))


_Value = TypeVar("_Value")


def _renew(kept: dict[int, _Value], found: Mapping[int, _Value], begin: int, first: int) -> None:
    """Replace the intervals from `begin` on by what was found, and forget those before `first`."""
    for place in [place for place in kept if place < first or place >= begin]:
        del kept[place]
    kept.update({place: value for place, value in found.items() if place >= begin})


def _rates(kept: _Kept, places: range) -> Rates:
    outcomes: dict[str, int] = {}
    for decided in kept.decisions.values():
        for outcome, count in decided.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    return Rates(
        decisions=Rate(
            title="Decisions",
            counts=[sum(kept.decisions.get(place, {}).values()) for place in places],
            is_capped=kept.decisions_capped in places,
        ),
        webhooks=Rate(
            title="Webhooks delivered",
            counts=[kept.delivered.get(place, 0) for place in places],
            is_capped=kept.delivered_capped in places,
        ),
        outcomes=sorted(outcomes.items(), key=lambda item: -item[1]),
    )
