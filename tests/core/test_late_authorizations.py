"""Timeout reversals in one batch of the engine, in memory, against the model."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import event as seen
from hypothesis import example, given
from hypothesis import strategies as st

from cardledger.ledger.core.card import CardState
from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.core.late_approvals import (
    ApprovalKind,
    Claim,
    LateApproval,
    NetworkReversal,
    claims,
)
from cardledger.ledger.engine.change_set import BatchSnapshot
from cardledger.ledger.engine.decisions.batch import Batch
from cardledger.ledger.engine.parsing import card_of, closings_of
from cardledger.ledger.engine.records import Card, ClosingPage, Decided, LockedAccount
from cardledger.ledger.messaging import inbox, timeout_reversals
from cardledger.ledger.messaging.inbox import Lane, Message, Owner
from cardledger.ledger.projections import accounts
from cardledger.ledger.sandbox.funding_rail import SandboxFundingRail
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.testing.model import Model
from cardledger.ledger.testing.strategies import SCENE, Event, Story, late
from cardledger.schema.ids import Id
from tests.books import InMemoryLedger

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OWNER = Owner(customer_id=new_id(), platform_id=new_id())
ACCOUNT = LockedAccount(
    Id.parse(SCENE.account_id),
    OWNER.customer_id,
    OWNER.platform_id,
    SCENE.currency,
    accounts.ACTIVE,
    0,
    0,
    0,
    0,
    version=0,
)


def message_of(event: Event) -> Message:
    """Return `event` as the inbox has it."""
    if event["type"] == timeout_reversals.TIMEOUT_REVERSAL:
        return timeout_reversals.reversal_of(message_of(event["authorization"]), at=NOON)
    return inbox.address(event, OWNER, lane=Lane.LIVE, reply_to=None, at=NOON)


def decide(story: Story) -> tuple[list[Decided], dict[str, Any]]:
    """Decide `story` in one batch; return the outcomes, and the account after it."""
    messages = [message_of(event) for event in story]
    account = replace(ACCOUNT)
    batch = Batch(
        snapshot(messages, account), now=NOON, rail=SandboxFundingRail(delay=timedelta(0))
    )
    decided = batch.decide(messages)
    books = InMemoryLedger()
    for context in batch.writes.card_transactions:
        token = context.roll_up.identity.issuer_transaction_token
        books.states[token] = context.roll_up.state
    figures = {token: books.figures(token) for token in books.states}
    return decided, {
        "balance": account.balance,
        "held": account.held,
        "owed": account.owed,
        "transactions": figures,
    }


def snapshot(messages: Sequence[Message], account: LockedAccount) -> BatchSnapshot:
    card_id = card_of({"cardId": SCENE.card_id})
    card = Card(
        card_id,
        OWNER.customer_id,
        OWNER.platform_id,
        "customer",
        account.id,
        SCENE.currency,
        CardState.ACTIVE,
        None,
    )
    return BatchSnapshot(
        cards={card_id: card},
        accounts={account.id: account},
        closing_pages={closing: ClosingPage([], None) for closing in closings_of(messages)},
        system_accounts={
            (OWNER.platform_id, SCENE.currency, str(kind)): new_id() for kind in ChartAccount
        },
        platform_customer_ids={OWNER.customer_id: "customer"},
    )


@given(late())
def test_a_batch_of_late_authorizations_ends_as_the_model_says(story: Story) -> None:
    model = Model()
    expected = [model.submit(event) for event in story]

    decided, account = decide(story)

    for event, word in zip(story, expected, strict=True):
        if event["type"] == timeout_reversals.TIMEOUT_REVERSAL:
            seen(f"{event['authorization']['type']} {word}")
    assert [str(one.outcome) for one in decided] == expected
    assert account == model.account()


# The types of late authorizations, and of the network reversals that can be of any of them.
REVERSED_BY = {
    "AUTHORIZATION": ["AUTHORIZATION_REVERSAL"],
    "FINANCIAL_AUTHORIZATION": ["CLEARING_REVERSAL", "RETURN"],
    "CREDIT_AUTHORIZATION": ["AUTHORIZATION_REVERSAL"],
}


@st.composite
def reversed_by_both(draw: st.DrawFn) -> Story:
    """Return a story of late authorizations of one purchase that the network takes back in part.

    Each of them has a timeout reversal, in any order, at any time after it.
    """
    asked = draw(st.sampled_from(sorted(REVERSED_BY)))
    [token, *_] = sorted(SCENE.shops)
    story = [SCENE.deposit(10_000) | {"reference": "deposit"}]
    waiting: list[Event] = []
    left = 0  # Of what no timeout reversal has taken back yet.
    for number in range(draw(st.integers(3, 10))):
        step = draw(st.sampled_from(["ask", "ask", "back", "back", "settle"]))
        amount = draw(st.integers(1, 60))
        if step == "ask":
            event = SCENE.event(asked, token, amount=amount) | {"reference": f"r{number}"}
            waiting.append(event)
            left += amount
        elif step == "back" and left:
            amount = min(amount, left)
            kind = draw(st.sampled_from(REVERSED_BY[asked]))
            event = SCENE.event(kind, token, amount=amount) | {"reference": f"r{number}"}
            left -= amount
        elif step == "settle" and len(waiting) == 1:
            event = SCENE.timeout_reversal(waiting.pop())
            left = 0
        else:
            continue
        story.append(event)
    return [*story, *map(SCENE.timeout_reversal, draw(st.permutations(waiting)))]


def of_one_purchase(*steps: tuple[str, int]) -> Story:
    """Return `steps`; a timeout reversal names its authorization by its place."""
    [token, *_] = sorted(SCENE.shops)
    story = [SCENE.deposit(10_000) | {"reference": "deposit"}]
    for number, (kind, amount) in enumerate(steps):
        if kind == "TIMEOUT_REVERSAL":
            story.append(SCENE.timeout_reversal(story[1 + amount]))
        else:
            story.append(SCENE.event(kind, token, amount=amount) | {"reference": f"r{number}"})
    return story


@given(reversed_by_both())
@example(
    of_one_purchase(
        ("FINANCIAL_AUTHORIZATION", 50),
        ("CLEARING_REVERSAL", 50),
        ("FINANCIAL_AUTHORIZATION", 60),
        ("RETURN", 60),
        ("TIMEOUT_REVERSAL", 0),
        ("TIMEOUT_REVERSAL", 2),
    )
)
def test_each_reversal_of_the_network_counts_for_one_late_authorization(story: Story) -> None:
    """It counted for each of them, and the customer paid what it had left of the others."""
    _, account = decide(story)

    assert (account["balance"], account["held"], account["owed"]) == (10_000, 0, 0)


# --- which reversal belongs to which approval ----------------------------------------------------


def hold(amount: int, approved_at: int, reversed_at: int = 100) -> LateApproval:
    return LateApproval(ApprovalKind.HOLD, amount, approved_at, reversed_at)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=4),
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 4), st.booleans()),
        max_size=4,
        unique_by=lambda step: step[0],
    ),
)
@example([(3, 1), (2, 3)], [(2, 3, False), (4, 2, True)])
def test_as_much_is_claimed_as_can_be(
    approvals: list[tuple[int, int]], steps: list[tuple[int, int, bool]]
) -> None:
    """Against a matching of minor units, of approvals that are all reversed in the end."""
    late = [hold(amount, approved_at) for amount, approved_at in approvals]
    reversals = [NetworkReversal(*step) for step in steps]

    found = claims(late, reversals)

    units = [approved_at for amount, approved_at in approvals for _ in range(amount)]
    taken = [each.sequence for each in reversals for _ in range(each.amount)]
    assert sum(claim.refunded + claim.reversed for _, claim in found) == matched(units, taken)
    assert all(claim.refunded + claim.reversed <= each.amount for each, claim in found)


def matched(units: list[int], reversed_units: list[int]) -> int:
    """Return the size of the largest matching of `units` with reversals that came after them."""
    partner: dict[int, int] = {}

    def augment(unit: int, tried: set[int]) -> bool:
        for n, place in enumerate(reversed_units):
            if place > units[unit] and n not in tried:
                tried.add(n)
                if n not in partner or augment(partner[n], tried):
                    partner[n] = unit
                    return True
        return False

    return sum(augment(unit, set()) for unit in range(len(units)))


def test_a_reversal_after_the_timeout_reversal_belongs_to_another_approval() -> None:
    first, second = hold(50, 1, reversed_at=5), hold(60, 2, reversed_at=9)

    found = claims([second, first], [NetworkReversal(3, 20), NetworkReversal(6, 60)])

    assert found == [(first, Claim(0, 20)), (second, Claim(0, 60))]


def refund(sequence: int, amount: int) -> NetworkReversal:
    return NetworkReversal(sequence, amount, is_refund=True)


@pytest.mark.parametrize(
    ("reversals", "refunded"),
    [
        ([refund(2, 40), refund(3, -30)], 10),
        ([refund(2, -30), refund(3, 40)], 40),  # Another one, before.
        ([refund(2, 20), NetworkReversal(3, 10), refund(4, 40), refund(5, -50)], 10),
        ([refund(2, 40), refund(7, -30)], 40),  # It was claimed by then.
        ([refund(2, 10), refund(3, -30)], 0),
    ],
)
def test_a_refund_that_was_reversed_is_none(
    reversals: list[NetworkReversal], refunded: int
) -> None:
    [(_, claim)] = claims([hold(50, 1, reversed_at=5)], reversals)

    assert claim.refunded == refunded
