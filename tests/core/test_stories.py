"""The stories of `cardledger trigger` are life cycles of the contract, figure by figure."""

import dataclasses
from typing import Any

import pytest

from cardledger.commands.daily.stories import START_BALANCE, STORIES, Figures
from cardledger.commands.daily.trigger import Played, Result, Scene
from tests.core.test_lifecycles import LIFECYCLES


@pytest.mark.parametrize("name", STORIES)
def test_a_story_has_the_steps_and_figures_of_its_life_cycle(name: str) -> None:
    story = STORIES[name]
    [life_cycle] = [cycle for cycle in LIFECYCLES if cycle["id"] == story.life_cycle]

    steps = [(step.type, step.amount, step.expected) for step in story.steps]

    assert life_cycle["startBalance"] == START_BALANCE
    assert steps == [
        (step["type"], step.get("amount"), figures(step["expect"])) for step in life_cycle["steps"]
    ]


def figures(expected: dict[str, Any]) -> Figures:
    """Return the figures of a step of a life cycle with one card transaction."""
    [own] = expected["transactions"].values()
    account = {name: expected[name] for name in ("balance", "held", "owed")}
    others = {name: value for name, value in own.items() if name != "pullCount"}
    return Figures(**account, **others, pull_count=own["pullCount"])


def test_a_figure_that_differs_is_reported() -> None:
    story = STORIES["tip"]
    scene = Scene(
        customer_id="c", account_id="a", card_id="k", currency="USD", balance=50_000, is_new=True
    )
    step = story.steps[0]
    actual = dataclasses.replace(step.expected, pulled=1, balance=1)
    played = [Played(step=step, amount=step.amount, card_transaction={}, actual=actual)]

    of_new_card = Result(story=story, scene=scene, played=played)
    of_existing = Result(story=story, scene=dataclasses.replace(scene, is_new=False), played=played)

    assert of_new_card.deviations() == [
        "step 1: balance is 1, expected 48750",
        "step 1: pulled is 1, expected 1250",
    ]
    assert of_existing.deviations() == ["step 1: pulled is 1, expected 1250"]
