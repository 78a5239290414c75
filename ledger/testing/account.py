"""The account of a model: what it keeps, and the figures that follow from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cardledger.ledger.testing import purchases
from cardledger.ledger.testing.purchases import Purchase

Event = Mapping[str, Any]
"""A network event as JSON; docs/testing.md lists the other types that a model accepts."""

MOVES: Final = {
    "CLEARING": 1,
    "RETURN_REVERSAL": 1,
    "CLEARING_REVERSAL": -1,
    "RETURN": -1,
    "FINANCIAL_CREDIT_AUTHORIZATION": -1,
}
"""The direction of the money that an event has moved, whether or not it could be applied."""


@dataclass
class Account:
    """A funding account with one card. Amounts are minor units."""

    money: int = 0
    card_state: str = "ACTIVE"
    max_spend: int | None = None
    reason: str | None = None  # The decline reason of the last authorization.
    late_reason: str | None = None  # Why an authorization is declined in any case.
    purchases: dict[str, Purchase] = field(default_factory=dict)
    debts: dict[str, int] = field(
        default_factory=dict
    )  # The number of the message that began each debt.
    parked: list[tuple[int, Event]] = field(default_factory=list)
    seen: dict[tuple[str, str], Event] = field(default_factory=dict)
    rejected: list[Event] = field(default_factory=list)  # What moved money under a used key.
    deposited: int = 0
    arrivals: int = 0

    @property
    def queue(self) -> list[str]:
        """The purchases with a debt, oldest first."""
        return sorted(self.debts, key=lambda name: self.debts[name])

    def balance(self) -> int:
        """Return the available balance of the funding account."""
        return self.money

    def held(self) -> int:
        """Return the amount held for clearings to come."""
        total = 0
        for purchase in self.purchases.values():
            covered = purchases.covered(purchase)
            if covered > purchase["settled"]:
                total += covered - purchase["settled"]
        return total

    def owed(self) -> int:
        """Return the amount due: settled by the network and not paid by the account."""
        total = 0
        for purchase in self.purchases.values():
            total += purchases.overdrawn(purchase) + purchase["unpaid"]
        return total

    def written_off(self) -> int:
        """Return the amount that the operator has lost: written off, less what came back."""
        return sum(
            purchase["clearingsWrittenOff"] + purchase["debitsWrittenOff"]
            for purchase in self.purchases.values()
        )

    def pending(self) -> int:
        """Return the pulled amount that is not confirmed."""
        return sum(purchase["pending"] for purchase in self.purchases.values())

    def suspended(self) -> int:
        """Return what the network has moved and no card transaction has: due to it, if positive."""
        waiting = [event for _, event in self.parked] + self.rejected
        return sum(event["due"] if "due" in event else due_to_network(event) for event in waiting)

    def network_settlement(self) -> int:
        """Return what is due to the network."""
        total = self.suspended()
        for purchase in self.purchases.values():
            total += purchase["settled"] - purchase["refunded"]
        return total

    def status(self, name: str) -> str:
        """Return the status of a purchase; the first rule that matches decides."""
        return purchases.status(self.purchases[name])

    def status_reason(self, name: str) -> str | None:
        """Return why a purchase is VOIDED, or None."""
        if self.status(name) != "VOIDED":
            return None
        closed = self.purchases[name]["closed"]
        return str(closed) if closed in {"EXPIRED", "CARD_CLOSED"} else "REVERSED"

    def figures(self, token: str) -> dict[str, Any]:
        """Return one card transaction with the field names of the published life cycles."""
        return purchases.figures(self.purchases[token])

    def account(self) -> dict[str, Any]:
        """Return the account with the field names of the published life cycles."""
        return {
            "balance": self.balance(),
            "held": self.held(),
            "owed": self.owed(),
            "transactions": {name: self.figures(name) for name in self.purchases},
        }


def due_to_network(event: Event) -> int:
    """Return what `event` has made due to the network, if it is of no credit."""
    return int(MOVES.get(event["type"], 0) * event.get("amount", 0))
