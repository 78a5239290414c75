"""The rules of payments: what follows what, and what is left of the money at the end."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.core.entries import ChartAccount
from cardledger.ledger.core.payments.payment import (
    ImpossibleStepError,
    Kind,
    RefundStatus,
    State,
    Status,
    Step,
    Terms,
    entries,
    evolve,
)

Books = Counter[tuple[ChartAccount, bool]]
"""What is on the credit side, by account and whether in another currency, that is received."""


@st.composite
def terms(draw: st.DrawFn) -> Terms:
    kind = draw(st.sampled_from([each for each in Kind if each is not Kind.INTERNAL]))
    amount = draw(st.integers(1, 10**12))
    is_payer = kind in {Kind.OUT, Kind.EXCHANGE}
    fee = draw(st.integers(0, amount - 1)) if is_payer else 0
    is_converted = kind is Kind.EXCHANGE or (is_payer and draw(st.booleans()))
    received = draw(st.integers(1, 10**12)) if is_converted else amount - fee
    return Terms(
        kind=kind,
        amount=amount,
        fee=fee,
        received=received,
        is_converted=is_converted,
        is_funded=is_payer and draw(st.booleans()),
    )


def possible(about: Terms, state: State) -> list[tuple[Step, State]]:
    found = []
    for step in Step:
        try:
            found.append((step, evolve(about, state, step)))
        except ImpossibleStepError:
            continue
    return found


def post(books: Books, about: Terms, state: State, step: Step) -> None:
    for movement in entries(about, state, step):
        assert movement.entry.amount > 0
        side = movement.is_received and about.is_converted
        books[movement.entry.debit, side] -= movement.entry.amount
        books[movement.entry.credit, side] += movement.entry.amount


@given(about=terms(), data=st.data())
def test_whatever_happens_the_money_is_where_the_status_says(
    about: Terms, data: st.DataObject
) -> None:
    books, state = Books(), State()
    while steps := possible(about, state):
        step, after = data.draw(st.sampled_from(steps))
        post(books, about, state, step)
        state = after
        assert sum(books[account, False] for account in ChartAccount) == 0
        assert sum(books[account, True] for account in ChartAccount) == 0
        if data.draw(st.booleans()):
            break

    sent = {account: amount for (account, side), amount in books.items() if not side}
    clearing = [
        books[account, side]
        for account in (ChartAccount.OUTBOUND_CLEARING, ChartAccount.INBOUND_CLEARING)
        for side in (True, False)
    ]
    assert min(clearing) >= 0
    if state.refund is RefundStatus.COMPLETED:
        kept = about.fee if state.is_returned else 0
        arrived = about.amount if about.is_funded else 0
        assert max(clearing) == 0
        assert sent.get(ChartAccount.CUSTOMER, 0) == (
            arrived - kept if about.kind is Kind.OUT else 0
        )
        assert books[ChartAccount.FX, False] == books[ChartAccount.FX, True] == 0
    elif state.status is Status.COMPLETED:
        assert max(clearing) == 0
        assert books[ChartAccount.TRANSFERS, False] == (
            -about.amount if about.kind is Kind.FEE else about.fee
        )


@pytest.mark.parametrize("kind", [Kind.OUT, Kind.IN, Kind.RECEIVED, Kind.FEE, Kind.EXCHANGE])
def test_nothing_follows_an_end(kind: Kind) -> None:
    about = Terms(kind=kind, amount=10, received=10)
    seen, waiting = set(), [State()]
    while waiting:
        state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        waiting += [after for _, after in possible(about, state)]

    ends = {state for state in seen if not possible(about, state)}
    assert ends
    assert all(
        state.refund is RefundStatus.COMPLETED or state.status in {Status.COMPLETED, Status.FAILED}
        for state in ends
    )
    assert max(state.steps for state in seen) < 10


def test_a_payment_is_refunded_once() -> None:
    about = Terms(kind=Kind.OUT, amount=10, received=10)
    state = State()
    for step in (Step.DEBITED, Step.FAILED, Step.REFUNDED):
        state = evolve(about, state, step)

    with pytest.raises(ImpossibleStepError, match="REFUNDED cannot follow"):
        evolve(about, state, Step.REFUNDED)
