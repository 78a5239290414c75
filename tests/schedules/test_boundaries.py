"""A fault at any boundary leaves the same books as no fault, for every type of message."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import settings

from cardledger.ledger.engine.records import Decided
from cardledger.ledger.messaging import inbox
from cardledger.schema.ids import Id
from tests.schedules.driver import Fault, in_turn
from tests.schedules.scenario import Scenario
from tests.schedules.scenarios import SCENARIOS
from tests.schedules.stage import Stage, Theatre
from tests.world import outcomes_of

NIGHTLY: Final = 1000  # Examples of the Hypothesis profile from which on everything is tried.


def set_up(theatre: Theatre, scenario: Scenario) -> tuple[Stage, set[Id]]:
    """Return a stage on which the messages of `scenario` wait to be decided, and their ids."""
    stage = theatre.stage(scenario.history, scenario.balance)
    stage = replace(stage, is_of_platform=scenario.is_of_platform)
    accepted = stage.accept(*scenario.messages, lane=scenario.lane)
    return stage, {message.id for message in accepted}


def check_decided(scenario: Scenario, decided: Sequence[Decided], accepted: Collection[Id]) -> None:
    """Check that all is decided as `scenario` says, and what the engine has sent to itself."""
    assert tuple(outcomes_of(decided)) == tuple(scenario.outcomes)
    sent = [each.message.body for each in decided if each.message.id not in accepted]
    assert {body["type"] for body in sent} == set(scenario.follow_ups)


def faults_at(boundary: int, scenario: Scenario) -> Sequence[Fault]:
    """Return the faults to try; nightly all at every boundary.

    Otherwise one at every second boundary, or at every fourth (`Scenario.every`): the even ones of
    one scenario, the odd ones of the next. So all scenarios together try every fault at every
    boundary that many of them have.
    """
    faults = list(Fault)
    if settings().max_examples > NIGHTLY:
        return faults
    number = SCENARIOS.index(scenario)
    if (boundary + number) % scenario.every:
        return []
    return [faults[(boundary // scenario.every + number // scenario.every) % len(faults)]]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_fault_at_any_boundary_changes_nothing_in_the_books(
    theatre: Theatre, scenario: Scenario
) -> None:
    stage, accepted = set_up(theatre, scenario)
    worker = stage.draining(0, scenario.lane)
    [undisturbed] = theatre.play([worker], in_turn)
    left = {each.message.body["type"] for each in theatre.swept}
    assert inbox.OF_PAYMENTS.isdisjoint(left), "a worker that is struck goes on with a payment"
    check_decided(scenario, [*worker.decided, *theatre.swept], accepted)
    expected = stage.books()

    for boundary in range(undisturbed.boundaries):
        for fault in faults_at(boundary, scenario):
            stage, _ = set_up(theatre, scenario)
            workers = [stage.draining(number, scenario.lane) for number in range(2)]
            disturbed, _ = theatre.play(workers, in_turn, {boundary: fault})

            assert disturbed.boundaries > boundary, "the fault has struck"
            assert stage.books() == expected, f"{fault.name} at boundary {boundary}"

    assert undisturbed.boundaries > 5, "a decision has a claim, a load, writes and a commit"
    assert expected["inbox"] == 0
