"""What was measured: figures with their spread, and the bars that they are held to."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table: `values`, one a round, in `unit`.

    `least` and `aim` are the bars; with `lower` less is better, as for times and sizes. `pooled` is
    the value of all samples of the run together, where these are pooled; `values` are then those of
    its halves.
    """

    part: str
    name: str
    unit: str
    values: Sequence[float]
    least: float | None = None
    aim: float | None = None
    lower: bool = False
    pooled: float | None = None

    @property
    def median(self) -> float:
        """What the figure is called by: the median of the rounds, or what all samples have."""
        return statistics.median(self.values) if self.pooled is None else self.pooled

    @property
    def spread(self) -> float:
        """Largest less smallest value, as a share of the median: how far to trust it."""
        if not self.median:
            return 0.0
        return (max(self.values) - min(self.values)) / self.median

    @property
    def holds(self) -> bool | None:
        """Whether the bar holds; None where there is none."""
        if self.least is None:
            return None
        return self.median <= self.least if self.lower else self.median >= self.least

    @property
    def reaches_aim(self) -> bool:
        """Whether what we aim at is reached as well."""
        if self.aim is None:
            return False
        return self.median <= self.aim if self.lower else self.median >= self.aim

    def wire(self) -> dict[str, Any]:
        """Return the figure for JSON."""
        return {
            **asdict(self),
            "median": round(self.median, 3),
            "spread": round(self.spread, 3),
            "holds": self.holds,
        }


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of `values` do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def find(figures: Sequence[Figure], name: str) -> Figure | None:
    """Return the figure called `name`."""
    return next((figure for figure in figures if figure.name == name), None)


def ratio(  # noqa: PLR0913 - a line of the table
    name: str, over: Figure, under: Figure, *, part: str, least: float, aim: float
) -> Figure:
    """Return how `over` compares to `under`: the medians of one run."""
    return Figure(
        part=part,
        name=name,
        unit="ratio",
        values=[over.median / under.median],
        least=least,
        aim=aim,
    )
