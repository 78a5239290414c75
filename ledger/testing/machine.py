"""A state machine that plays card life cycles to a ledger and compares it with the model.

Subclass `LedgerMachine`, return your ledger from `ledger`, and let pytest find `TestCase`:

    class Machine(LedgerMachine):
        def ledger(self) -> Ledger:
            return MyLedger()

    TestMyLedger = Machine.TestCase
"""

from typing import Any, ClassVar, Protocol

try:
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'cardledger.ledger.testing.machine needs Hypothesis: pip install "cardledger[testing]"',
        name=error.name,
    ) from error

from cardledger.ledger.testing.model import Event, Model
from cardledger.ledger.testing.strategies import SCENE, SHOPS, SMALL, Scene

_TOKENS = st.sampled_from(
    [token for token, shop in SHOPS.items() if shop[-3:] not in {"005", "006"}]
)
_AMOUNTS = SMALL | st.integers(1, 1_000)


class Ledger(Protocol):
    """What is tested: one funding account with one card."""

    def submit(self, event: Event) -> str | None:
        """Take an event; say what became of it, in the words of an outcome, or nothing."""

    def balance(self) -> int:
        """Return what is available on the funding account."""

    def held(self) -> int:
        """Return what is set aside for clearings to come."""

    def owed(self) -> int:
        """Return what the network took and the account has not paid."""

    def figures(self, token: str) -> dict[str, Any]:
        """Return one card transaction, as `Model.figures` does."""


class LedgerMachine(RuleBasedStateMachine):
    """Tells a ledger and the model the same story, and compares them after every event."""

    scene: ClassVar[Scene] = SCENE

    def ledger(self) -> Ledger:
        """Return a ledger without money and without history."""
        raise NotImplementedError("return the ledger that is to be tested")

    def __init__(self) -> None:
        """Start with nothing submitted."""
        super().__init__()
        self.model = Model()
        self.tested = self.ledger()
        self.submitted: list[Event] = []

    @initialize(amount=st.integers(1, 300) | st.integers(1, 10**6))
    def start(self, amount: int) -> None:
        """Bring the money to start with."""
        self.submit(self.scene.deposit(amount))

    @rule(amount=_AMOUNTS)
    def deposit(self, amount: int) -> None:
        """Bring more money."""
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
        """Ask for more, or learn that it has been approved."""
        self.submit(self.scene.event(kind, token, amount=amount))

    @rule(token=_TOKENS, amount=st.just(0) | _AMOUNTS)
    def advise(self, token: str, amount: int) -> None:
        """Say what the authorized total is now."""
        self.submit(self.scene.event("AUTHORIZATION_ADVICE", token, amount=amount))

    @rule(token=_TOKENS, amount=st.none() | _AMOUNTS)
    def reverse(self, token: str, amount: int | None) -> None:
        """Take an authorization back."""
        self.submit(self.scene.event("AUTHORIZATION_REVERSAL", token, amount=amount))

    @rule(token=_TOKENS)
    def expire(self, token: str) -> None:
        """Let an authorization expire."""
        self.submit(self.scene.event("AUTHORIZATION_EXPIRY", token))

    @rule(token=_TOKENS, amount=_AMOUNTS, final=st.sampled_from([None, True, False]))
    def clear(self, token: str, amount: int, final: bool | None) -> None:  # noqa: FBT001 - what a message says
        """Move money at the network."""
        self.submit(self.scene.event("CLEARING", token, amount=amount, final=final))

    @rule(
        kind=st.sampled_from(["CLEARING_REVERSAL", "RETURN", "RETURN_REVERSAL"]),
        token=_TOKENS,
        amount=_AMOUNTS,
    )
    def give_back(self, kind: str, token: str, amount: int) -> None:
        """Move money back, or take back what was moved back."""
        self.submit(self.scene.event(kind, token, amount=amount))

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Tell something again: it changes nothing."""
        if self.submitted:
            self._submit(data.draw(st.sampled_from(self.submitted), label="again"))

    @invariant()
    def agrees(self) -> None:
        """Balance, held, owed and every figure are those of the model."""
        assert self.tested.balance() == self.model.balance() >= 0
        assert self.tested.held() == self.model.held()
        assert self.tested.owed() == self.model.owed()
        for token in self.model.purchases:
            assert self.tested.figures(token) == self.model.figures(token), token

    def submit(self, event: Event) -> None:
        """Tell the ledger and the model a new event."""
        event = {**event, "reference": f"r{len(self.submitted)}"}
        self.submitted.append(event)
        self._submit(event)

    def _submit(self, event: Event) -> None:
        expected = self.model.submit(event)
        answer = self.tested.submit(event)
        assert answer in {expected, None}, f"{answer} instead of {expected}"
