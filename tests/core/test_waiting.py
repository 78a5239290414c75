import itertools

import pytest

from tests import waiting
from tests.waiting import Deadline, eventually, limit_s, slowness


def deadline(seconds: float, times: list[float], factor: float = 1.0) -> Deadline:
    return Deadline(
        seconds * waiting.TIME_SCALE**-1, clock=iter(times).__next__, slowness=lambda: factor
    )


def test_a_deadline_passes_after_its_seconds_on_an_idle_machine() -> None:
    limit = deadline(3, [0, 1, 2.9, 3])

    assert [limit.has_passed for _ in range(3)] == [False, False, True]


def test_a_second_of_a_machine_under_load_counts_less() -> None:
    limit = deadline(3, [0, 3, 6, 9], factor=3)

    assert [limit.has_passed for _ in range(3)] == [False, False, True]


def test_the_load_is_measured_again_while_a_test_waits() -> None:
    factors = itertools.chain([1.0], itertools.repeat(10.0))
    limit = Deadline(
        3 / waiting.TIME_SCALE, clock=iter([0, 2, 4, 6, 20]).__next__, slowness=factors.__next__
    )

    assert [limit.has_passed for _ in range(3)] == [False, False, False]


def test_a_suspended_process_has_not_used_up_its_deadline() -> None:
    limit = deadline(10, [0, 3600, 3601])

    assert not limit.has_passed
    assert not limit.has_passed


def test_every_limit_is_at_least_what_an_idle_machine_needs() -> None:
    assert slowness() >= 1
    assert limit_s(7) >= 7 * waiting.TIME_SCALE


def test_eventually_returns_the_first_true_result() -> None:
    results = iter([None, 0, "", "ready", "late"])

    assert eventually(results.__next__, poll_s=0) == "ready"


def test_eventually_names_what_did_not_happen() -> None:
    with pytest.raises(AssertionError, match=r"no card within 0\.01 s"):
        eventually(lambda: None, timeout_s=0.01, message="no card")
