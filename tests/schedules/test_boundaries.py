"""A fault at any boundary leaves the same books as no fault, for every type of message."""

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import settings

from tests.schedules.driver import Fault, in_turn
from tests.schedules.scenarios import SCENARIOS, Scenario
from tests.schedules.stage import Stage, Theatre

NIGHTLY: Final = 1000  # Examples of the Hypothesis profile from which on everything is tried.


def set_up(theatre: Theatre, scenario: Scenario) -> Stage:
    """Return a stage on which the messages of `scenario` wait to be decided."""
    stage = theatre.stage(scenario.history, scenario.balance)
    stage.accept(*scenario.messages)
    return stage


def faults_at(boundary: int, scenario: Scenario) -> Sequence[Fault]:
    """Return the faults to try; nightly all at every boundary.

    Otherwise one at every second boundary: the even ones of one scenario, the odd ones of the
    next. So all scenarios together try every fault at every boundary that many of them have.
    """
    faults = list(Fault)
    if settings().max_examples > NIGHTLY:
        return faults
    number = SCENARIOS.index(scenario)
    if (boundary + number) % 2:
        return []
    return [faults[(boundary // 2 + number // 2) % len(faults)]]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_fault_at_any_boundary_changes_nothing_in_the_books(
    theatre: Theatre, scenario: Scenario
) -> None:
    stage = set_up(theatre, scenario)
    [undisturbed] = theatre.play([stage.draining(0)], in_turn)
    expected = stage.books()

    for boundary in range(undisturbed.boundaries):
        for fault in faults_at(boundary, scenario):
            stage = set_up(theatre, scenario)
            disturbed, _ = theatre.play(
                [stage.draining(0), stage.draining(1)], in_turn, {boundary: fault}
            )

            assert disturbed.boundaries > boundary, "the fault has struck"
            assert stage.books() == expected, f"{fault.name} at boundary {boundary}"

    assert undisturbed.boundaries > 5, "a decision has a claim, a load, writes and a commit"
    assert expected["inbox"] == 0
    if scenario.follow_up:
        assert "engine" in {source for source, *_ in expected["outcomes"]}, "it sent a follow-up"
