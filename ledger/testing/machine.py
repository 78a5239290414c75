"""A state machine that runs card life cycles on a ledger and compares it with the model.

Subclass `LedgerMachine`, return your ledger from `ledger`, and let pytest find `TestCase`:

    class Machine(LedgerMachine):
        def ledger(self) -> Ledger:
            return MyLedger()

    TestMyLedger = Machine.TestCase
"""

from typing import Any, ClassVar, Protocol

try:
    from hypothesis import strategies as st
    from hypothesis.stateful import (
        RuleBasedStateMachine,
        initialize,
        invariant,
        precondition,
        rule,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'cardledger.ledger.testing.machine needs Hypothesis: pip install "cardledger[testing]"',
        name=error.name,
    ) from error

from cardledger.ledger.testing.account import Event
from cardledger.ledger.testing.model import Model
from cardledger.ledger.testing.strategies import SCENE, SHOPS, SMALL, Scene

_TOKENS = st.sampled_from(
    [token for token, shop in SHOPS.items() if shop[-3:] not in {"005", "006"}]
)
_AMOUNTS = SMALL | st.integers(1, 1_000)


class Ledger(Protocol):
    """The ledger under test: one funding account with one card."""

    def submit(self, event: Event) -> str | None:
        """Process an event; return its outcome such as `APPLIED`, or None."""

    def balance(self) -> int:
        """Return the available balance of the funding account."""

    def held(self) -> int:
        """Return the amount held for clearings to come."""

    def owed(self) -> int:
        """Return the amount due: settled by the network and not paid by the account."""

    def figures(self, token: str) -> dict[str, Any]:
        """Return one card transaction, as `Model.figures` does."""


class LedgerMachine(RuleBasedStateMachine):
    """Submits the same events to a ledger and to the model, and compares them after every event."""

    scene: ClassVar[Scene] = SCENE
    write_offs: ClassVar[bool] = False
    """Whether the ledger also takes WRITE_OFF (`Scene.write_off`)."""

    def ledger(self) -> Ledger:
        """Return a ledger without a balance and without events."""
        raise NotImplementedError("return the ledger under test")

    def __init__(self) -> None:
        """Start without events."""
        super().__init__()
        self.model = Model()
        self.ledger_under_test = self.ledger()
        self.submitted: list[Event] = []

    @initialize(amount=st.integers(1, 300) | st.integers(1, 10**6))
    def start(self, amount: int) -> None:
        """Deposit the opening balance."""
        self.submit(self.scene.deposit(amount))

    @rule(amount=_AMOUNTS)
    def deposit(self, amount: int) -> None:
        """Deposit money."""
        self.submit(self.scene.deposit(amount))

    @rule(
        kind=st.sampled_from(
            [
                "AUTHORIZATION",
                "AUTHORIZATION_INCREMENT",
                "STAND_IN_AUTHORIZATION",
                "FINANCIAL_AUTHORIZATION",
            ]
        ),
        token=_TOKENS,
        amount=_AMOUNTS,
    )
    def authorize(self, kind: str, token: str, amount: int) -> None:
        """Request an authorization, or record one that the network approved."""
        self.submit(self.scene.event(kind, token, amount=amount))

    @rule(token=_TOKENS, amount=_AMOUNTS)
    def authorize_credit(self, token: str, amount: int) -> None:
        """Request the authorization of a credit."""
        self.submit(self.scene.event("CREDIT_AUTHORIZATION", token, amount=amount))

    @rule(
        kind=st.sampled_from(["AUTHORIZATION_ADVICE", "CREDIT_AUTHORIZATION_ADVICE"]),
        token=_TOKENS,
        amount=st.just(0) | _AMOUNTS,
    )
    def advise(self, kind: str, token: str, amount: int) -> None:
        """Adjust the authorized total, of a purchase or of a credit."""
        self.submit(self.scene.event(kind, token, amount=amount))

    @rule(token=_TOKENS, amount=st.none() | _AMOUNTS)
    def reverse(self, token: str, amount: int | None) -> None:
        """Reverse an authorization."""
        self.submit(self.scene.event("AUTHORIZATION_REVERSAL", token, amount=amount))

    @rule(token=_TOKENS)
    def expire(self, token: str) -> None:
        """Expire an authorization."""
        self.submit(self.scene.event("AUTHORIZATION_EXPIRY", token))

    @rule(token=_TOKENS, amount=_AMOUNTS, final=st.sampled_from([None, True, False]))
    def clear(self, token: str, amount: int, final: bool | None) -> None:  # noqa: FBT001 - a field of the message
        """Clear an amount."""
        self.submit(self.scene.event("CLEARING", token, amount=amount, final=final))

    @rule(
        kind=st.sampled_from(
            ["CLEARING_REVERSAL", "RETURN", "FINANCIAL_CREDIT_AUTHORIZATION", "RETURN_REVERSAL"]
        ),
        token=_TOKENS,
        amount=_AMOUNTS,
    )
    def refund_or_reverse(self, kind: str, token: str, amount: int) -> None:
        """Reverse a clearing, refund, credit, or reverse a refund."""
        self.submit(self.scene.event(kind, token, amount=amount))

    @precondition(lambda self: self.write_offs)
    @rule(token=_TOKENS, amount=_AMOUNTS)
    def write_off(self, token: str, amount: int) -> None:
        """Give up an amount that is owed; more than is owed is rejected."""
        self.submit(self.scene.write_off(token, amount))

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Submit an event again: a duplicate changes nothing."""
        if self.submitted:
            self._submit(data.draw(st.sampled_from(self.submitted), label="duplicate"))

    @invariant()
    def agrees(self) -> None:
        """Compare balance, held, owed and the figures of every card transaction with the model."""
        assert self.ledger_under_test.balance() == self.model.balance() >= 0
        assert self.ledger_under_test.held() == self.model.held()
        assert self.ledger_under_test.owed() == self.model.owed()
        for token in self.model.purchases:
            assert self.ledger_under_test.figures(token) == self.model.figures(token), token

    def submit(self, event: Event) -> None:
        """Submit a new event to the ledger and to the model."""
        event = {**event, "reference": f"r{len(self.submitted)}"}
        self.submitted.append(event)
        self._submit(event)

    def _submit(self, event: Event) -> None:
        expected = self.model.submit(event)
        outcome = self.ledger_under_test.submit(event)
        assert outcome in {expected, None}, f"{outcome} instead of {expected}"
