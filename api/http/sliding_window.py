"""How often is too often: a rate as people write it, and the arithmetic of a sliding window.

Standard library only, because the settings read it before anything heavy is imported.
"""

import re
from dataclasses import dataclass
from typing import Final

OFF: Final = "off"

_PERIODS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_RATE: Final = re.compile(rf"([1-9][0-9]{{0,11}})/({'|'.join(_PERIODS)})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `limit` in any `period_s` seconds."""

    limit: int
    period_s: int


@dataclass(slots=True)
class Count:
    """How often something happened in the running window and in the one before it."""

    window: int
    before: int = 0
    now: int = 0


def parse(text: str) -> Rate | None:
    """Return the rate that `text` says, such as `100/second`; None for `off`.

    Raises: ValueError.
    """
    said = text.strip().lower()
    if said == OFF:
        return None
    found = _RATE.fullmatch(said)
    if found is None:
        raise ValueError(f"must be a number per {', '.join(_PERIODS)}, as 100/second, or {OFF}")
    return Rate(int(found[1]), _PERIODS[found[2]])


def window_of(rate: Rate, at: float) -> int:
    """Return the number of the window that the time `at` is in; the same in every process."""
    return int(at // rate.period_s)


def turn(count: Count, window: int) -> None:
    """Let `count` be about `window`."""
    if window != count.window:
        # A clock that was set back starts anew: to be too generous once locks nobody out.
        count.before = count.now if window == count.window + 1 else 0
        count.now = 0
        count.window = window


def wait_s(rate: Rate, count: Count, at: float) -> float:
    """Return how long one more has to wait, 0.0 when it need not.

    The window slides: of the one before, the part counts that it still covers, as if what happened
    there had come evenly. So nobody gets twice the limit around the turn of a window.
    """
    passed = at / rate.period_s - count.window
    if count.before * (1 - passed) + count.now + 1 <= rate.limit:
        return 0.0
    if count.now < rate.limit:
        # Later in this window, when enough of the one before has slid out.
        return (1 - (rate.limit - count.now - 1) / count.before - passed) * rate.period_s
    # In the next one, of which this one is then the one before.
    return (2 - (rate.limit - 1) / count.now - passed) * rate.period_s
