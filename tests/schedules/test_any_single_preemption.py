"""A process is preempted once, at any step: the first of what is tried, for it finds the most."""

import pytest

from tests.schedules.plays import (
    PLAYS,
    Play,
    leaves_what_one_after_the_other_would,
    looks_up_no_answer_to_another_body,
    looks_up_no_approval_that_is_reversed,
    single_preemptions,
)
from tests.schedules.stage import Theatre


def test_a_look_up_never_gives_the_answer_to_another_body(theatre: Theatre) -> None:
    check = looks_up_no_answer_to_another_body(theatre)

    for preemption in single_preemptions(check):
        check(preemption)


def test_a_look_up_after_a_timeout_reversal_never_reads_an_approval(theatre: Theatre) -> None:
    check = looks_up_no_approval_that_is_reversed(theatre)

    for preemption in single_preemptions(check):
        check(preemption)


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_a_process_that_is_preempted_leaves_what_one_after_the_other_would(
    theatre: Theatre, play: Play
) -> None:
    check = leaves_what_one_after_the_other_would(theatre, play)

    for preemption in single_preemptions(check):
        check(preemption)
