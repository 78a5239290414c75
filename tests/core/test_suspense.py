"""Which events are money that has moved, and that an item of suspense leaves nothing behind."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.books.suspense import (
    TEXT_LIMIT,
    NetworkMoney,
    money_in,
    money_in_text,
    money_of_rejected,
    suspense_entry,
    taken_back,
    type_of_credit,
)
from cardledger.ledger.core import commands, events
from cardledger.ledger.core.card_transaction import UNKNOWN, decide
from cardledger.ledger.core.entries import ChartAccount, Entry, entries
from cardledger.ledger.core.money import MAX_AMOUNT
from cardledger.schema.ids import Id
from cardledger.schema.wire.network_events import EventType
from cardledger.schema.wire.outcomes import RejectionReason

CARD = Id.parse("0198a2b4-0000-7000-8000-000000000001")
MOVES = (
    EventType.CLEARING,
    EventType.CLEARING_REVERSAL,
    EventType.RETURN,
    EventType.RETURN_REVERSAL,
    EventType.FINANCIAL_CREDIT_AUTHORIZATION,
)
amounts = st.integers(1, MAX_AMOUNT)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def event(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"type": "CLEARING", "cardId": f"Card:{CARD}", "amount": 100, **fields}


@pytest.mark.parametrize("kind", EventType)
def test_only_what_has_moved_money_at_the_network_is_read(kind: EventType) -> None:
    moved = money_in(event(type=kind.value))

    assert (moved is not None) == (kind in MOVES)


@pytest.mark.parametrize("amount", [0, -1, True, 1.0, "1", None, [1], MAX_AMOUNT + 1])
def test_an_amount_that_cannot_be_booked_is_not_read(amount: object) -> None:
    assert money_in(event(amount=amount)) is None


@pytest.mark.parametrize("card", [None, 5, "", "Card:", "Card:7", f"Card:{CARD}0", ["Card"]])
def test_without_a_card_nothing_is_read(card: object) -> None:
    assert money_in(event(cardId=card)) is None


@given(amounts)
def test_what_else_is_wrong_with_an_event_does_not_matter(amount: int) -> None:
    body = event(amount=amount, currency=7, occurredAt="yesterday", settlement="none")

    assert money_in(body) == NetworkMoney("CLEARING", CARD, amount)


@pytest.mark.parametrize("sequence", [0, 3, -1, "3", False])
@pytest.mark.parametrize("reason", RejectionReason)
def test_what_its_sender_accepts_to_be_rejected_has_moved_nothing(
    sequence: object, reason: RejectionReason
) -> None:
    body = event(expectedSequence=sequence)
    moved = money_in(body) if reason is RejectionReason.INTERNAL_ERROR else None

    assert money_of_rejected(body, reason) == money_in_text(json.dumps(body), reason) == moved
    assert money_in(body) == NetworkMoney("CLEARING", CARD, 100)


@pytest.mark.parametrize("reason", RejectionReason)
def test_null_is_an_absent_field(reason: RejectionReason) -> None:
    assert money_of_rejected(event(expectedSequence=None), reason) == money_in(event())


@given(json_values | st.dictionaries(st.sampled_from(["type", "cardId", "amount"]), json_values))
def test_no_json_is_an_error(body: object) -> None:
    money_in(body)
    money_of_rejected(body, "MALFORMED")
    money_in_text(json.dumps(body), "MALFORMED")


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    money_in_text(text, "MALFORMED")


def test_a_text_is_read_up_to_a_limit() -> None:
    text = json.dumps(event())

    assert money_in_text(text.ljust(TEXT_LIMIT), "MALFORMED") == NetworkMoney("CLEARING", CARD, 100)
    assert money_in_text(text.ljust(TEXT_LIMIT + 1), "MALFORMED") is None
    assert money_in_text("[" * TEXT_LIMIT, "MALFORMED") is None


def change(booked: list[Entry]) -> Counter[ChartAccount]:
    """Return credits less debits of each account."""
    sums: Counter[ChartAccount] = Counter()
    for entry in booked:
        sums[entry.debit] -= entry.amount
        sums[entry.credit] += entry.amount
    return sums


@pytest.mark.parametrize(
    ("kind", "applied"),
    [
        ("CLEARING", events.Cleared(amount=7, unfunded=0, final=True)),
        ("CLEARING_REVERSAL", events.ClearingReversed(amount=7, unfunded=0)),
        ("RETURN", events.Refunded(amount=7, final=False)),
        ("RETURN_REVERSAL", events.RefundReversed(amount=7, unfunded=0)),
        ("FINANCIAL_CREDIT_AUTHORIZATION", events.Credited(amount=7)),
    ],
)
def test_the_network_is_due_the_same_as_if_the_event_was_applied(
    kind: str, applied: events.Event
) -> None:
    network = ChartAccount.NETWORK_SETTLEMENT
    suspended = change([suspense_entry(kind, 7)])

    assert suspended[network] == change(entries(applied))[network]
    assert suspended[ChartAccount.SUSPENSE] == -suspended[network]


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("CLEARING", commands.Clear(amount=7, final=False, balance=0)),
        ("CLEARING_REVERSAL", commands.ReverseClearing(amount=7, balance=0)),
        ("RETURN", commands.Refund(amount=7)),
        ("RETURN_REVERSAL", commands.ReverseRefund(amount=7, balance=0)),
        ("FINANCIAL_CREDIT_AUTHORIZATION", commands.Credit(amount=7)),
    ],
)
def test_of_a_credit_the_network_is_due_the_same_as_if_the_event_was_applied(
    kind: str, command: commands.Command
) -> None:
    network = ChartAccount.NETWORK_SETTLEMENT
    state = UNKNOWN
    for earlier in (
        commands.AdviseCredit(total=9),
        commands.Clear(amount=8, final=False, balance=0),
    ):
        state = decide(state, earlier).after
    applied = [entry for fact in decide(state, command).facts for entry in entries(fact)]

    suspended = change([suspense_entry(type_of_credit(kind), 7)])

    assert suspended[network] == change(applied)[network]


@given(st.sampled_from(MOVES), amounts)
def test_an_item_that_is_taken_back_leaves_nothing(kind: EventType, amount: int) -> None:
    booked = suspense_entry(kind, amount)

    assert not any(change([booked, taken_back(booked)]).values())
