"""Rates such as `100/second`, and the arithmetic of a sliding window.

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
    """The number of events in the current window and in the previous one."""

    window: int
    before: int = 0
    now: int = 0


def parse(text: str) -> Rate | None:
    """Return the rate in `text`, such as `100/second`; None for `off`.

    Raises: ValueError.
    """
    rate = text.strip().lower()
    if rate == OFF:
        return None
    match = _RATE.fullmatch(rate)
    if match is None:
        raise ValueError(f"must be a number per {', '.join(_PERIODS)}, as 100/second, or {OFF}")
    return Rate(int(match[1]), _PERIODS[match[2]])


def window_of(rate: Rate, at: float) -> int:
    """Return the number of the window that contains the time `at`; the same in every process."""
    return int(at // rate.period_s)


def turn(count: Count, window: int) -> None:
    """Move `count` on to `window`."""
    if window != count.window:
        # A clock that was set back starts anew: too generous once, but no caller is locked out.
        count.before = count.now if window == count.window + 1 else 0
        count.now = 0
        count.window = window


def wait_s(rate: Rate, count: Count, at: float) -> float:
    """Return how long the next event has to wait; 0.0 when it is within the limit.

    The window slides: of the previous window the part counts that it still covers, as if its events
    were spread evenly. So no caller gets twice the limit around the end of a window.
    """
    passed = at / rate.period_s - count.window
    if count.before * (1 - passed) + count.now + 1 <= rate.limit:
        return 0.0
    if count.now < rate.limit:
        # Later in this window, when enough of the previous one has slid out.
        return (1 - (rate.limit - count.now - 1) / count.before - passed) * rate.period_s
    # In the next window, whose previous window is then this one.
    return (2 - (rate.limit - 1) / count.now - passed) * rate.period_s
