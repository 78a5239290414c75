"""How often a worker looks at the inbox."""

import pytest

from cardledger.workers.process.sweep_pace import POLL_S, SweepPace

USUAL_S = 0.5
QUICK_S = POLL_S / 10


@pytest.fixture
def pace() -> SweepPace:
    """The pace of a worker without doorbells."""
    return SweepPace(USUAL_S, is_polling=lambda: True)


def test_while_doorbells_arrive_the_interval_is_the_usual_one() -> None:
    pace = SweepPace(USUAL_S, is_polling=lambda: False)

    pace.looked(QUICK_S, found=True)

    assert pace.next_s() == USUAL_S


def test_without_doorbells_the_next_look_comes_in_a_moment(pace: SweepPace) -> None:
    pace.looked(QUICK_S, found=False)

    assert pace.next_s() == POLL_S


def test_slow_looks_take_a_fifth_of_the_time_at_most(pace: SweepPace) -> None:
    pace.looked(0.02, found=False)
    slow_s = pace.next_s()
    pace.looked(2.0, found=False)

    assert slow_s == pytest.approx(0.1)
    assert pace.next_s() == USUAL_S


def test_after_a_look_that_failed_the_interval_is_the_usual_one(pace: SweepPace) -> None:
    pace.failed()

    assert pace.next_s() == USUAL_S


def test_looks_at_what_cannot_be_decided_come_later_and_later(pace: SweepPace) -> None:
    pauses = []
    for _ in range(20):
        pace.looked(QUICK_S, found=True)
        pauses.append(pace.next_s())

    assert pauses[:3] == [POLL_S] * 3
    assert pauses == sorted(pauses)
    assert pauses[-1] == USUAL_S


@pytest.mark.parametrize("end", ["decided", "found nothing"])
def test_once_something_is_decided_or_nothing_waits_looks_come_soon_again(
    pace: SweepPace, end: str
) -> None:
    for _ in range(20):
        pace.looked(QUICK_S, found=True)

    if end == "decided":
        pace.decided()
    else:
        pace.looked(QUICK_S, found=False)

    assert pace.next_s() == POLL_S
