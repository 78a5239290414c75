"""The checks of an authorization, in their documented order."""

from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest

from cardledger.ledger.core.authorization import decline_reason
from cardledger.ledger.core.card import CardState
from cardledger.ledger.core.events import DeclineReason
from tests.books import NOON, authorize

OBJECTIONS: list[tuple[dict[str, Any], DeclineReason]] = [
    ({"issuer_decline": DeclineReason.INSUFFICIENT_FUNDS}, DeclineReason.INSUFFICIENT_FUNDS),
    ({"card_state": CardState.FROZEN}, DeclineReason.CARD_PAUSED),
    ({"account_usable": False}, DeclineReason.NO_ELIGIBLE_FUNDING_SOURCE),
    ({"max_spend": 99}, DeclineReason.SPEND_LIMIT_EXCEEDED),
    ({"balance": 99}, DeclineReason.INSUFFICIENT_FUNDS),
    ({"decide_by": NOON - timedelta(microseconds=1)}, DeclineReason.DECISION_TIMEOUT),
]
"""What may be wrong with an authorization of 100, in the order in which it is looked at."""


def test_an_authorization_without_objection_is_approved() -> None:
    assert decline_reason(authorize(100), needed=100) is None


@pytest.mark.parametrize(("fields", "reason"), OBJECTIONS)
def test_each_ground_for_a_decline_has_its_reason(
    fields: dict[str, Any], reason: DeclineReason
) -> None:
    assert decline_reason(authorize(100, **fields), needed=100) is reason


@pytest.mark.parametrize(("first", "second"), list(combinations(range(len(OBJECTIONS)), 2)))
def test_the_first_ground_for_a_decline_in_the_list_decides(first: int, second: int) -> None:
    fields = OBJECTIONS[second][0] | OBJECTIONS[first][0]

    assert decline_reason(authorize(100, **fields), needed=100) is OBJECTIONS[first][1]


@pytest.mark.parametrize("state", sorted(set(CardState) - {CardState.ACTIVE, CardState.FROZEN}))
def test_a_card_that_is_neither_active_nor_frozen_is_not_active(state: CardState) -> None:
    reason = decline_reason(authorize(100, card_state=state), needed=100)

    assert reason is DeclineReason.CARD_NOT_ACTIVE


def test_exactly_the_limit_may_be_spent() -> None:
    assert decline_reason(authorize(100, max_spend=100), needed=100) is None


def test_exactly_the_balance_may_be_spent() -> None:
    assert decline_reason(authorize(100, balance=100), needed=100) is None


def test_what_is_owed_cannot_be_spent() -> None:
    assert decline_reason(authorize(100, balance=150, owed=50), needed=100) is None
    reason = decline_reason(authorize(100, balance=150, owed=51), needed=100)
    assert reason is DeclineReason.INSUFFICIENT_FUNDS


def test_only_what_must_be_pulled_needs_funds() -> None:
    assert decline_reason(authorize(100, balance=10), needed=10) is None


def test_an_answer_exactly_at_the_deadline_is_in_time() -> None:
    assert decline_reason(authorize(100, decide_by=NOON), needed=100) is None
