"""The life cycles of fixtures/lifecycles.json and credit_lifecycles.json, figure by figure.

They are a contract. Each is played to the pure rules and to the naive model.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from cardledger.ledger.core.card import CardState
from cardledger.ledger.testing.account import Event
from cardledger.ledger.testing.model import Model
from cardledger.ledger.testing.strategies import SCENE, Scene
from tests.books import InMemoryLedger

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
OF_CREDITS: Final = json.loads((FIXTURES / "credit_lifecycles.json").read_text(encoding="utf-8"))
LIFECYCLES: Final = [
    lifecycle
    for lifecycle in json.loads((FIXTURES / "lifecycles.json").read_text(encoding="utf-8"))
    if "steps" in lifecycle
]


def playable() -> Iterable[Any]:
    for lifecycle in [*LIFECYCLES, *OF_CREDITS]:
        yield pytest.param(lifecycle, id=f"{lifecycle['id']} {lifecycle['title']}")


def events_of(lifecycle: dict[str, Any], scene: Scene) -> list[Event | None]:
    """Return the events of `lifecycle`, its first deposit in front; None: the card is frozen."""
    played: list[Event | None] = [
        {**scene.deposit(lifecycle["startBalance"]), "reference": "start"}
    ]
    for place, step in enumerate(lifecycle["steps"], start=1):
        match step:
            case {"repeatOf": number}:
                played.append(played[number])
                continue
            case {"type": "CARD_FROZEN"}:
                played.append(None)
                continue
            case {"type": "FUND", "amount": amount}:
                event = scene.deposit(amount)
            case {"type": kind, "transaction": token}:
                fields = {name: step.get(name) for name in ("amount", "final")}
                event = scene.event(kind, token, **fields)
            case _:
                raise AssertionError(step)
        played.append({**event, "reference": f"step-{place}"})
    return played


@pytest.mark.parametrize("kind", [InMemoryLedger, Model])
@pytest.mark.parametrize("lifecycle", list(playable()))
def test_a_life_cycle_has_exactly_its_numbers(
    lifecycle: dict[str, Any], kind: type[InMemoryLedger | Model]
) -> None:
    one = kind()
    start, *played = events_of(lifecycle, SCENE)
    assert start is not None
    one.submit(start)

    for step, event in zip(lifecycle["steps"], played, strict=True):
        if event is None:
            one.card_state = CardState.FROZEN
            word = "APPLIED"
        else:
            word = one.submit(event)

        assert one.account() == step["expect"]
        assert (word == "DUPLICATE") == ("repeatOf" in step)
        assert (word == "DECLINED") == ("declineReason" in step)
        if word == "DECLINED":
            assert one.reason == step["declineReason"]


def test_there_are_36_life_cycles_and_18_of_credits() -> None:
    assert (len(LIFECYCLES), len(OF_CREDITS)) == (36, 18)
