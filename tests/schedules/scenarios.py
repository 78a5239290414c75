"""One scenario for each type of message: its history, and the messages to decide."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cardledger.ledger.engine.debts import DEBTS_LIMIT
from cardledger.ledger.engine.reads import CLOSING_LIMIT
from cardledger.ledger.messaging import inbox
from cardledger.ledger.messaging.timeout_reversals import TIMEOUT_REVERSAL
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.wire.outcomes import RejectionReason
from tests.schedules.bookings import BOOKINGS
from tests.schedules.payments import PAYMENTS
from tests.schedules.scenario import MakeMessage, Message, Scenario
from tests.world import Cardholder, World


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


def timeout_reversal(authorization: MakeMessage) -> MakeMessage:
    """A caller without an approval by `decideBy` has `authorization` settled."""
    return lambda world, cardholder: {
        "type": TIMEOUT_REVERSAL,
        "authorization": authorization(world, cardholder),
    }


def _suspension(amount: int) -> MakeMessage:
    """A clearing was rejected before it could be put into the inbox."""

    def tell(world: World, cardholder: Cardholder) -> Message:
        event = world.clearing(cardholder, "T9", amount)
        names = ("type", "source", "reference", "cardId", "amount")
        key = new_id()
        return {
            "type": inbox.SUSPENSE,
            "source": "engine",
            "reference": f"{key}/suspense",
            "cardId": event["cardId"],
            "rejectionId": str(key),
            "reason": RejectionReason.MALFORMED.value,
            "event": {name: event[name] for name in names},
        }

    return tell


def _confirmation(*, succeeded: bool) -> MakeMessage:
    return event(inbox.PULL_CONFIRMATION, 1250, source="schedule", succeeded=succeeded)


AUTHORIZED: Final = [event("AUTHORIZATION", 1250)]
_SETTLED: Final = [*AUTHORIZED, event("CLEARING", 1250)]
_REFUNDED: Final = [*_SETTLED, event("RETURN", 1250)]
_PENDING: Final = [event("AUTHORIZATION", 1250, merchant={"descriptor": "SHOP005"})]
_CREDITED: Final = [event("CREDIT_AUTHORIZATION", 1250)]
_NAMED: Final = event("AUTHORIZATION", 1250, reference="r")
_MANY: Final = [event("AUTHORIZATION", 10, f"T{number:03}") for number in range(CLOSING_LIMIT + 5)]
_DEBTS: Final = [event("CLEARING", 10, f"T{number:03}") for number in range(DEBTS_LIMIT + 5)]
_TWICE: Final = ["APPLIED"] * 2

SCENARIOS: Final = [
    Scenario("authorization", AUTHORIZED),
    Scenario("decline", [event("AUTHORIZATION", 1250)], balance=100, outcomes=["DECLINED"]),
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
    Scenario(
        "parked reversal",
        [event("CLEARING_REVERSAL", 1250), *_SETTLED],
        outcomes=["PARKED", *_TWICE],
    ),
    Scenario("deposit", [_deposit(2000)]),
    Scenario("deposit that pays debts", [_deposit(2000)], [event("CLEARING", 1500)], balance=100),
    Scenario("transfer", [_transfer(2000)]),
    Scenario("closed card", [_card_closed], [*AUTHORIZED, event("AUTHORIZATION", 300, "T2")]),
    Scenario("pending pull", _PENDING),
    Scenario("confirmed pull", [_confirmation(succeeded=True)], _PENDING),
    Scenario("failed pull", [_confirmation(succeeded=False)], _PENDING),
    Scenario("credit authorization", _CREDITED),
    Scenario("credit advice", [event("CREDIT_AUTHORIZATION_ADVICE", 700)], _CREDITED),
    Scenario("timeout reversal", [timeout_reversal(_NAMED)], [_NAMED]),
    Scenario(
        "timeout reversal first",
        [timeout_reversal(_NAMED), _NAMED],
        outcomes=["DECLINED", "DUPLICATE"],
    ),
    Scenario("suspense", [_suspension(700)]),
    Scenario(
        "long queue of debts",
        [_deposit(2000)],
        _DEBTS,
        0,
        follow_ups=[inbox.RECOVERY],
        outcomes=_TWICE,
    ),
    Scenario(
        "closed card of many",
        [_card_closed],
        _MANY,
        follow_ups=[inbox.CARD_CLOSED],
        outcomes=_TWICE,
    ),
    Scenario(
        "repetition",
        [event("AUTHORIZATION", 1250, reference="r")] * 2,
        outcomes=["APPLIED", "DUPLICATE"],
    ),
    Scenario(
        "reused key",
        [event("AUTHORIZATION", amount, reference="r") for amount in (1250, 1300)],
        outcomes=["APPLIED", "REJECTED"],
    ),
    Scenario("malformed", [event("AUTHORIZATION", -1)], outcomes=["REJECTED"]),
    Scenario(
        "several", [*_SETTLED, event("AUTHORIZATION", 300, "T2"), _deposit(10)], outcomes=_TWICE * 2
    ),
    *(replace(scenario, every=4) for scenario in (*PAYMENTS, *BOOKINGS)),  # They are alike.
]

EXEMPT: Final[Mapping[str, str]] = {}
"""The types of messages without a scenario, and why."""
