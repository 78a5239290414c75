"""Every type of message that a batch decides has a scenario, or a reason to have none."""

import json
from typing import Any

from cardledger.ledger.engine.decisions import sources
from cardledger.ledger.messaging import inbox, timeout_reversals
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import EventType
from tests.schedules.scenario import Scenario
from tests.schedules.scenarios import EXEMPT, SCENARIOS
from tests.world import World


def decided_types() -> set[str]:
    """Return the types of the messages that a batch decides.

    A type is a constant whose name is its value; one that only the ledger sends has its sources.
    """
    of_modules = {
        name
        for module in (inbox, timeout_reversals)
        for name, value in vars(module).items()
        if name == value
    }
    return of_modules | set(sources._OF_THE_LEDGER) | {kind.value for kind in EventType}


def types_of(scenario: Scenario, world: World, platform: Id) -> set[str]:
    cardholder = world.cardholder(platform)
    bodies: list[dict[str, Any]] = [make(world, cardholder) for make in scenario.messages]
    assert json.dumps(bodies), "they go through JSON"
    return {*(body["type"] for body in bodies), *scenario.follow_ups}


def test_every_type_that_a_batch_decides_has_a_scenario_or_a_reason_to_have_none(
    world: World, platform: Id
) -> None:
    played = {kind for scenario in SCENARIOS for kind in types_of(scenario, world, platform)}

    assert played | EXEMPT.keys() == decided_types()
    assert not played & EXEMPT.keys()
    assert all(reason for reason in EXEMPT.values())
