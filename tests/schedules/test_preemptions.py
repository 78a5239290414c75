"""Concurrent processes are preempted up to three times; Hypothesis searches and shrinks."""

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedules.plays import (
    PLAYS,
    Check,
    Play,
    leaves_what_one_after_the_other_would,
    looks_up_no_answer_to_another_body,
)
from tests.schedules.stage import Theatre

PREEMPTIONS: Final = st.dictionaries(st.integers(0, 40), st.integers(0, 2), max_size=3)


def search(check: Check) -> None:
    """Call `check` with schedules until Hypothesis has tried enough of them."""

    @settings(max_examples=max(20, settings().max_examples // 15))
    @given(preemptions=PREEMPTIONS)
    def play(preemptions: dict[int, int]) -> None:
        check(preemptions)

    play()


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_preempted_processes_leave_what_one_after_the_other_would(
    theatre: Theatre, play: Play
) -> None:
    search(leaves_what_one_after_the_other_would(theatre, play))


def test_a_look_up_never_gives_the_answer_to_another_body(theatre: Theatre) -> None:
    search(looks_up_no_answer_to_another_body(theatre))
