"""The arithmetic of rate limits, on a clock of our own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.api.http import sliding_window
from cardledger.api.http.sliding_window import Count, Rate

rates_of_people = st.builds(Rate, limit=st.integers(1, 50), period_s=st.sampled_from([1, 60, 3600]))


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/second", Rate(100, 1)),
        (" 6000/Minute ", Rate(6000, 60)),
        ("1/hour", Rate(1, 3600)),
        ("7/day", Rate(7, 86_400)),
        ("off", None),
    ],
)
def test_a_rate_is_a_number_per_period(text: str, rate: Rate | None) -> None:
    assert sliding_window.parse(text) == rate


@pytest.mark.parametrize(
    "text", ["", "0/second", "-1/second", "1/week", "1", "1.5/day", "\u0661/day"]
)
def test_an_invalid_rate_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number per"):
        sliding_window.parse(text)


def let_in(rate: Rate, times: list[float]) -> list[float]:
    """Return those of `times` at which one more is let in."""
    count = Count(0)
    admitted = []
    for at in sorted(times):
        sliding_window.turn(count, sliding_window.window_of(rate, at))
        if not sliding_window.wait_s(rate, count, at):
            count.now += 1
            admitted.append(at)
    return admitted


@given(rate=rates_of_people, spread=st.lists(st.floats(0, 4), max_size=200))
def test_no_window_lets_in_more_than_the_limit(rate: Rate, spread: list[float]) -> None:
    admitted = let_in(rate, [one * rate.period_s for one in spread])

    for window in range(4):
        inside = [at for at in admitted if at // rate.period_s == window]
        assert len(inside) <= rate.limit


@given(rate=rates_of_people, spread=st.lists(st.floats(0, 4), max_size=200), last=st.floats(4, 5))
def test_retry_after_is_sufficient_and_hardly_longer_than_necessary(
    rate: Rate, spread: list[float], last: float
) -> None:
    count = Count(0)
    for at in sorted(one * rate.period_s for one in [*spread, last]):
        sliding_window.turn(count, sliding_window.window_of(rate, at))
        if not sliding_window.wait_s(rate, count, at):
            count.now += 1
    now = last * rate.period_s
    wait = sliding_window.wait_s(rate, count, now)

    def is_let_in(at: float) -> bool:
        later = Count(count.window, count.before, count.now)
        sliding_window.turn(later, sliding_window.window_of(rate, at))
        return sliding_window.wait_s(rate, later, at) == 0

    assert 0 <= wait <= 2 * rate.period_s
    assert is_let_in(now + wait + rate.period_s * 1e-6)
    if wait:
        assert not is_let_in(now + wait * 0.99 - rate.period_s * 1e-6)


def test_the_start_of_a_new_window_does_not_double_the_limit() -> None:
    rate = Rate(100, 60)

    admitted = let_in(rate, [59.9] * 200 + [60.1] * 200)

    assert len(admitted) == 100


def test_a_clock_that_is_set_back_locks_no_caller_out() -> None:
    count = Count(5, before=100, now=100)

    sliding_window.turn(count, 3)

    assert sliding_window.wait_s(Rate(1, 60), count, 3 * 60) == 0
