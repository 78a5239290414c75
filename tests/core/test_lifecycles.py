"""The life cycles of fixtures/lifecycles.json, figure by figure: they are a contract.

Each is played to the pure rules and to the naive model. One that has an event type which is not
supported yet is left out; a new type joins by a word in `SUPPORTED`.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.books import Books
from tests.model import Model

SUPPORTED: Final = {"AUTHORIZATION", "CLEARING", "FUND"}

LIFECYCLES: Final = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "lifecycles.json").read_text(encoding="utf-8")
)


def types(lifecycle: dict[str, Any]) -> set[str]:
    return {step["type"] for step in lifecycle["steps"] if "type" in step}


def playable() -> Iterable[Any]:
    for lifecycle in LIFECYCLES:
        if types(lifecycle) <= SUPPORTED:
            yield pytest.param(lifecycle, id=f"{lifecycle['id']} {lifecycle['title']}")


def play(one: Books | Model, step: dict[str, Any]) -> str | None:
    match step["type"]:
        case "AUTHORIZATION":
            return one.authorize(step["transaction"], step["amount"])
        case "CLEARING":
            one.clear(step["transaction"], step["amount"], step.get("final"))
        case "FUND":
            one.deposit(step["amount"])
        case other:
            raise AssertionError(other)
    return None


@pytest.mark.parametrize("kind", [Books, Model])
@pytest.mark.parametrize("lifecycle", list(playable()))
def test_a_life_cycle_has_exactly_its_numbers(
    lifecycle: dict[str, Any], kind: type[Books | Model]
) -> None:
    one = kind()
    one.deposit(lifecycle["startBalance"])

    for step in lifecycle["steps"]:
        # A repetition never reaches the rules: tests/integration/test_engine.py plays it.
        reason = None if "repeatOf" in step else play(one, step)

        assert one.account() == step["expect"]
        assert reason == step.get("declineReason")


def test_the_life_cycles_of_this_release_are_all_played() -> None:
    played = {parameter.values[0]["id"] for parameter in playable()}

    assert played >= {"S01", "S02", "S08", "S09", "S10", "S14", "S26", "S27", "S30", "S35"}
    assert played >= {"S36", "S41", "S46", "S47"}
    for lifecycle in LIFECYCLES:
        assert lifecycle["id"] in played or types(lifecycle) - SUPPORTED
