"""The interfaces of the storm that take several events read their answers to the end."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from cardledger.ledger.messaging.inbox import Lane
from cardledger.ledger.storage.ids import new_id
from storm.load.batches import _answered
from storm.load.bodies import REQUIRED, SHARES, follow_ups
from storm.load.journal import Journal, Sent

APPLIED: Final = {"outcome": "APPLIED"}


def notes(journal: Journal, count: int) -> list[Sent]:
    return [
        journal.add(Sent(("storm", str(number)), "enqueue", new_id(), Lane.LIVE, {}, 0.0))
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("lines", "again", "answered"),
    [
        ([APPLIED, {"outcome": "DECLINED", "reason": "INSUFFICIENT_FUNDS"}], None, 2),
        ([APPLIED, {"outcome": "ACCEPTED"}], "not decided in time", 1),
        ([APPLIED], "the answer is incomplete", 1),
        ([], "the answer is incomplete", 0),
    ],
)
def test_events_are_sent_again_until_each_has_an_outcome(
    lines: list[dict[str, Any]], again: str | None, answered: int
) -> None:
    journal = Journal()

    assert _answered(notes(journal, 2), lines) == again

    assert (
        journal.answered_by_interface["enqueue" if answered else "requests over HTTP"] == answered
    )
    assert len(journal.unanswered()) == 2 - answered
    assert journal.acknowledged == len(lines)


def test_what_follows_an_authorization_leaves_what_it_says() -> None:
    changes: dict[str, Callable[[int, int], int]] = {
        "AUTHORIZATION_INCREMENT": lambda before, amount: before + amount,
        "AUTHORIZATION_ADVICE": lambda _, amount: amount,
        "AUTHORIZATION_REVERSAL": lambda before, amount: before - amount,
    }

    for before in (1, 2, 3, 9_000):
        for kind, amount, left in follow_ups(before):
            assert amount > 0
            assert left == max(changes[kind](before, amount), 0), (kind, before)


def test_a_storm_requires_only_doors_that_it_uses() -> None:
    assert set(REQUIRED) <= SHARES.keys()
    assert all(SHARES[interface] >= 4 for interface in REQUIRED)
