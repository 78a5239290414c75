"""One scenario for each type of message: its history, and the messages to decide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.world import Cardholder, World

Message = dict[str, Any]
MakeMessage = Callable[[World, Cardholder], Message]
"""Makes a message about a cardholder."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`history` is decided undisturbed; the decision of `messages` is disturbed."""

    name: str
    messages: Sequence[MakeMessage]
    history: Sequence[MakeMessage] = ()
    balance: int = 50_000


def event(kind: str, amount: int | None = None, name: str = "T1", **fields: Any) -> MakeMessage:  # noqa: ANN401 - JSON
    return lambda world, cardholder: world.event(kind, cardholder, name, amount, **fields)


def _deposit(amount: int) -> MakeMessage:
    return lambda world, cardholder: world.deposit(cardholder, amount)


def _card_closed(world: World, cardholder: Cardholder) -> Message:
    return world.card_closed(cardholder)


def _transfer(amount: int) -> MakeMessage:
    def tell(world: World, cardholder: Cardholder) -> Message:
        return world.transfer(cardholder, world.another_account(cardholder), amount)

    return tell


AUTHORIZED: Final = [event("AUTHORIZATION", 1250)]
_SETTLED: Final = [*AUTHORIZED, event("CLEARING", 1250)]
_REFUNDED: Final = [*_SETTLED, event("RETURN", 1250)]

SCENARIOS: Final = [
    Scenario("authorization", AUTHORIZED),
    Scenario("decline", [event("AUTHORIZATION", 1250)], balance=100),
    Scenario("increment", [event("AUTHORIZATION_INCREMENT", 500)], AUTHORIZED),
    Scenario("financial authorization", [event("FINANCIAL_AUTHORIZATION", 1250)]),
    Scenario("credit", [event("FINANCIAL_CREDIT_AUTHORIZATION", 1250)]),
    Scenario("stand-in", [event("STAND_IN_AUTHORIZATION", 1250)], balance=100),
    Scenario("advice", [event("AUTHORIZATION_ADVICE", 700)], AUTHORIZED),
    Scenario("reversal", [event("AUTHORIZATION_REVERSAL")], AUTHORIZED),
    Scenario("expiry", [event("AUTHORIZATION_EXPIRY")], AUTHORIZED),
    Scenario("tip", [event("CLEARING", 1500)], AUTHORIZED),
    Scenario("unfunded tip", [event("CLEARING", 1500)], AUTHORIZED, balance=1250),
    Scenario("force post", [event("CLEARING", 1500)]),
    Scenario("clearing reversal", [event("CLEARING_REVERSAL", 1250)], _SETTLED),
    Scenario("refund", [event("RETURN", 1250)], _SETTLED),
    Scenario("refund reversal", [event("RETURN_REVERSAL", 1250)], _REFUNDED),
    Scenario("parked reversal", [event("CLEARING_REVERSAL", 1250), *_SETTLED]),
    Scenario("deposit", [_deposit(2000)]),
    Scenario("deposit that pays debts", [_deposit(2000)], [event("CLEARING", 1500)], balance=100),
    Scenario("transfer", [_transfer(2000)]),
    Scenario("closed card", [_card_closed], [*AUTHORIZED, event("AUTHORIZATION", 300, "T2")]),
    Scenario("pending pull", [event("AUTHORIZATION", 1250, merchant={"descriptor": "SHOP005"})]),
    Scenario("repetition", [event("AUTHORIZATION", 1250, reference="r")] * 2),
    Scenario(
        "reused key", [event("AUTHORIZATION", amount, reference="r") for amount in (1250, 1300)]
    ),
    Scenario("malformed", [event("AUTHORIZATION", -1)]),
    Scenario("several", [*_SETTLED, event("AUTHORIZATION", 300, "T2"), _deposit(10)]),
]
