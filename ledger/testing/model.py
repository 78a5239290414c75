"""The money rule a second time, written from the design and not from the code.

Slow, plain and whole: one funding account, its card transactions in dicts, loops instead of
formulas that carry state along. What a ledger does with a history is compared with what this
does; where the two differ, one of them is wrong.

Amounts are minor units. It does not know the range of a `bigint`: Python's integers have none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Event = Mapping[str, Any]
"""A network event as it is on the wire (docs/testing.md lists the others that a model takes)."""

CardTransactionKey = dict[str, Any]

_CAN_BE_TAKEN_AGAIN: Final = {"REVERSED", "EXPIRED", "REFUNDED"}


@dataclass
class Model:
    """A funding account with one card, as a customer would tell its story."""

    money: int = 0
    card_state: str = "ACTIVE"
    max_spend: int | None = None
    reason: str | None = None  # Why the last authorization was declined.
    purchases: dict[str, CardTransactionKey] = field(default_factory=dict)
    debts: dict[str, int] = field(default_factory=dict)  # When each purchase began to owe.
    parked: list[tuple[int, Event]] = field(default_factory=list)
    seen: dict[tuple[str, str], Event] = field(default_factory=dict)
    deposited: int = 0
    arrivals: int = 0

    # --- messages --------------------------------------------------------------------------

    def submit(self, event: Event) -> str:
        """Take one event; return the word for what became of it."""
        key = (event["source"], event["reference"])
        if key in self.seen:
            return "DUPLICATE" if self.seen[key] == event else "REJECTED"
        self.seen[key] = event
        self.arrivals += 1
        self.reason = None
        if event["type"] == "DEPOSIT":
            self.deposited += event["amount"]
            self.money += event["amount"]
            self._pay_debts()
            return "APPLIED"
        if event["type"] == "CARD_CLOSED":
            self._close_card()
            return "APPLIED"
        return self._network(event)

    def _network(self, event: Event) -> str:
        name = event["issuerTransactionToken"]
        if self._waits(event):
            self.parked.append((self.arrivals, event))
            return "PARKED"
        is_new = name not in self.purchases
        purchase = self._purchase(name, event)
        word = self._apply(purchase, event, self.arrivals)
        if word == "IGNORED":
            if is_new:
                del self.purchases[name]
            return word
        for number, waiting in list(self.parked):
            if waiting["issuerTransactionToken"] == name and not self._waits(waiting):
                self.parked.remove((number, waiting))
                self._apply(purchase, waiting, number)
        return word

    def _waits(self, event: Event) -> bool:
        """Whether `event` changes something that has not arrived yet."""
        known = self.purchases.get(event["issuerTransactionToken"], {})
        if "expiresAt" in event:
            return False  # A ledger's own schedule speaks of what it has seen.
        match event["type"]:
            case "AUTHORIZATION_REVERSAL" | "AUTHORIZATION_EXPIRY" | "AUTHORIZATION_ADVICE":
                return not known.get("isAuthorizationKnown")
            case "CLEARING_REVERSAL":
                return bool(event["amount"] > known.get("settled", 0))
            case "RETURN_REVERSAL":
                return bool(event["amount"] > known.get("refunded", 0))
        return False

    def _apply(self, purchase: CardTransactionKey, event: Event, number: int) -> str:  # noqa: C901, PLR0912 - one branch a kind
        amount: Any = event.get("amount")  # Only a reversal and an expiry may have none.
        left = purchase["authorized"] - purchase["settled"]
        left = max(left, 0)
        match event["type"]:
            case "AUTHORIZATION" | "AUTHORIZATION_INCREMENT" | "FINANCIAL_AUTHORIZATION":
                return self._authorize(purchase, event, number)
            case "STAND_IN_AUTHORIZATION":
                self._approve(purchase, purchase["authorized"] + amount)
            case "AUTHORIZATION_ADVICE":
                if purchase["reason"]:
                    return "IGNORED"
                self._approve(purchase, amount)
                if amount <= purchase["settled"]:
                    self._close(purchase, "REVERSED")
            case "AUTHORIZATION_REVERSAL":
                if purchase["closed"] or left == 0:
                    return "IGNORED"
                taken = left if amount is None else min(amount, left)
                purchase["authorized"] -= taken
                if taken == left:
                    self._close(purchase, "REVERSED")
            case "AUTHORIZATION_EXPIRY":
                if purchase["closed"] or not (purchase["authorized"] or purchase["settled"]):
                    return "IGNORED"
                purchase["authorized"] -= left
                self._close(purchase, "EXPIRED")
            case "CLEARING":
                self._clear(purchase, amount, event.get("final"))
            case "CLEARING_REVERSAL":
                purchase["settled"] -= amount
            case "RETURN":
                if not purchase["authorized"] and not purchase["settled"]:
                    self._close(purchase, "REFUNDED")
                purchase["refunded"] += amount
                purchase["refunds"] += 1
                self.money += amount
            case "RETURN_REVERSAL":
                purchase["refunded"] -= amount
                if amount <= self._pullable(purchase):
                    self.money -= amount
                else:
                    purchase["unpaid"] += amount
            case "PULL_CONFIRMATION":
                return self._confirm(purchase, event, number)
        self._settle_up(purchase, number)
        if event["type"] == "RETURN":
            self._pay_debts()
        return "APPLIED"

    # --- what may be refused -----------------------------------------------------------------

    def _authorize(self, purchase: CardTransactionKey, event: Event, number: int) -> str:
        amount = event["amount"]
        clears = event["type"] == "FINANCIAL_AUTHORIZATION"
        self.reason = self._refusal(purchase, amount, clears=clears)
        purchase["isAuthorizationKnown"] = True
        if self.reason:
            nothing_else = not purchase["authorized"]
            if nothing_else and not purchase["clearings"] and not purchase["refunds"]:
                purchase["asked"] = amount
                purchase["reason"] = self.reason
            return "DECLINED"
        self._approve(purchase, purchase["authorized"] + amount)
        slow = purchase["descriptor"][-3:] in {"005", "006"}
        self._settle_up(purchase, number, money=self.money, slow=slow)
        if clears:
            self._clear(purchase, amount, final=True)
            self._settle_up(purchase, number, money=self.money)
        return "APPLIED"

    def _refusal(self, purchase: CardTransactionKey, amount: int, *, clears: bool) -> str | None:
        promised = max(purchase["authorized"], purchase["settled"])
        to_be_promised = purchase["authorized"] + amount
        if clears:
            to_be_promised = max(to_be_promised, purchase["settled"] + amount)
        missing = max(to_be_promised - promised, 0)
        if purchase["descriptor"].endswith("002"):
            return "INSUFFICIENT_FUNDS"
        if purchase["descriptor"].endswith("003") or self.card_state == "FROZEN":
            return "CARD_PAUSED"
        if self.card_state != "ACTIVE":
            return "CARD_NOT_ACTIVE"
        if self.max_spend is not None and amount > self.max_spend:
            return "SPEND_LIMIT_EXCEEDED"
        if missing > max(self.money - self.owed(), 0):
            return "INSUFFICIENT_FUNDS"
        return None

    # --- what has happened -------------------------------------------------------------------

    def _approve(self, purchase: CardTransactionKey, total: int) -> None:
        purchase["isAuthorizationKnown"] = True
        purchase["authorized"] = total
        purchase["asked"] = 0
        purchase["reason"] = None
        if purchase["closed"] in _CAN_BE_TAKEN_AGAIN:
            purchase["closed"] = None

    def _clear(self, purchase: CardTransactionKey, amount: int, final: bool | None) -> None:  # noqa: FBT001 - what a message says
        purchase["settled"] += amount
        purchase["clearings"] += 1
        if final is None:
            final = purchase["settled"] >= purchase["authorized"]
        if final:
            purchase["closed"] = "CLEARED"
        elif purchase["closed"] == "REFUNDED":
            purchase["closed"] = None

    def _close(self, purchase: CardTransactionKey, by: str) -> None:
        if not purchase["closed"]:
            purchase["closed"] = by

    def _close_card(self) -> None:
        for purchase in list(self.purchases.values()):
            stands = purchase["authorized"] or purchase["settled"]
            if stands and not purchase["closed"]:
                purchase["authorized"] = min(purchase["authorized"], purchase["settled"])
                purchase["closed"] = "CARD_CLOSED"
                self._settle_up(purchase, self.arrivals)

    def _confirm(self, purchase: CardTransactionKey, event: Event, number: int) -> str:
        if not purchase["pendingCount"]:
            return "IGNORED"
        purchase["pendingCount"] -= 1
        amount = min(event["amount"], purchase["pending"])
        purchase["pending"] -= amount
        if not event["succeeded"]:
            # The account has its money back: older debts may have it, this one waits for other.
            purchase["pulled"] -= amount
            self.money += amount
            purchase["open"] = self._missing(purchase)
            self._note_debt(purchase, number)
            self._pay_debts(ahead_of=purchase["name"])
        return "APPLIED"

    # --- the rule ----------------------------------------------------------------------------

    def _required(self, purchase: CardTransactionKey) -> int:
        if purchase["closed"]:
            return int(purchase["settled"])
        return int(max(purchase["authorized"], purchase["settled"]))

    def _missing(self, purchase: CardTransactionKey) -> int:
        funded: int = purchase["pulled"] - purchase["released"]
        return max(self._required(purchase) - funded, 0)

    def _pullable(self, purchase: CardTransactionKey) -> int:
        return 0 if purchase["descriptor"].endswith("002") else self.money

    def _settle_up(
        self,
        purchase: CardTransactionKey,
        number: int,
        *,
        money: int | None = None,
        slow: bool = False,
    ) -> None:
        """Bring what is funded to what is required; a pull is all or nothing."""
        if money is None:
            money = self._pullable(purchase)
        missing = self._missing(purchase)
        surplus = purchase["pulled"] - purchase["released"] - self._required(purchase)
        was_open = purchase["open"]
        if was_open:
            purchase["open"] = missing  # One open pull; it follows the shortfall.
        elif missing:
            purchase["pulls"] += 1
            if missing <= money:
                self.money -= missing
                purchase["pulled"] += missing
                if slow:
                    purchase["pending"] += missing
                    purchase["pendingCount"] += 1
            else:
                purchase["open"] = missing
        self._note_debt(purchase, number)
        if surplus > 0:
            purchase["released"] += surplus
            funded = purchase["pulled"] - purchase["released"]
            purchase["pending"] = min(purchase["pending"], funded)
            self.money += surplus
        if surplus > 0 or (was_open and was_open != missing):
            self._pay_debts()  # Money came back, or less is wanted.

    def _note_debt(self, purchase: CardTransactionKey, number: int) -> None:
        if purchase["open"] or purchase["unpaid"]:
            self.debts.setdefault(purchase["name"], number)
        else:
            self.debts.pop(purchase["name"], None)

    def _pay_debts(self, ahead_of: str | None = None) -> None:
        """Pay what is owed, oldest first; one that cannot be paid keeps the others waiting."""
        for name in self.queue:
            if name == ahead_of:
                return
            purchase = self.purchases[name]
            if purchase["unpaid"] > self.money:
                return
            self.money -= purchase["unpaid"]
            purchase["unpaid"] = 0
            if purchase["open"] > self.money:
                return
            self.money -= purchase["open"]
            purchase["pulled"] += purchase["open"]
            purchase["open"] = 0
            del self.debts[name]

    def _purchase(self, name: str, event: Event) -> CardTransactionKey:
        merchant = event.get("merchant") or {}
        new = {
            "name": name,
            "descriptor": merchant.get("descriptor", ""),
            "isAuthorizationKnown": False,
            "authorized": 0,
            "asked": 0,
            "reason": None,
            "closed": None,
            "settled": 0,
            "clearings": 0,
            "refunded": 0,
            "refunds": 0,
            "pulled": 0,
            "pulls": 0,
            "pending": 0,
            "pendingCount": 0,
            "released": 0,
            "open": 0,
            "unpaid": 0,
        }
        return self.purchases.setdefault(name, new)

    # --- what a reader sees ------------------------------------------------------------------

    @property
    def queue(self) -> list[str]:
        """The purchases that wait for money, oldest first."""
        return sorted(self.debts, key=lambda name: self.debts[name])

    def balance(self) -> int:
        """Return what is on the funding account: what is available."""
        return self.money

    def held(self) -> int:
        """Return what is set aside for clearings to come."""
        total = 0
        for purchase in self.purchases.values():
            funded = purchase["pulled"] - purchase["released"]
            if funded > purchase["settled"]:
                total += funded - purchase["settled"]
        return total

    def owed(self) -> int:
        """Return what the network took and the account has not paid."""
        total = 0
        for purchase in self.purchases.values():
            funded = purchase["pulled"] - purchase["released"]
            if funded < purchase["settled"]:
                total += purchase["settled"] - funded
            total += purchase["unpaid"]
        return total

    def pending(self) -> int:
        """Return what has been pulled and is not confirmed."""
        return sum(purchase["pending"] for purchase in self.purchases.values())

    def status(self, name: str) -> str:
        """Return the first line of the design's table that matches."""
        purchase = self.purchases[name]
        if purchase["reason"] and not purchase["clearings"] and not purchase["refunds"]:
            return "DECLINED"
        if purchase["open"] or purchase["unpaid"]:
            return "EXCEPTION"
        refunded, settled = purchase["refunded"], purchase["settled"]
        if purchase["closed"] and refunded > 0 and refunded >= settled:
            return "REFUNDED"
        if purchase["closed"] and settled > 0:
            return "SETTLED"
        if settled > 0:
            return "PARTIALLY_SETTLED"
        return "VOIDED" if purchase["closed"] else "AUTHORIZED"

    def status_reason(self, name: str) -> str | None:
        """Return why a purchase is void, None when it is not."""
        if self.status(name) != "VOIDED":
            return None
        closed = self.purchases[name]["closed"]
        return str(closed) if closed in {"EXPIRED", "CARD_CLOSED"} else "REVERSED"

    def figures(self, token: str) -> dict[str, Any]:
        """Return one card transaction in the words of the published life cycles."""
        purchase = self.purchases[token]
        return {
            "status": self.status(token),
            "authorized": purchase["authorized"] or purchase["asked"],
            "pullCount": purchase["pulls"],
            "pulled": purchase["pulled"],
            "released": purchase["released"],
            "settled": purchase["settled"],
            "refunded": purchase["refunded"],
        }

    def account(self) -> dict[str, Any]:
        """Return the whole account in the words of the published life cycles."""
        return {
            "balance": self.balance(),
            "held": self.held(),
            "owed": self.owed(),
            "transactions": {name: self.figures(name) for name in self.purchases},
        }
