"""The money rule a second time, written from the design and not from the code.

Slow, plain and whole: one funding account, its card transactions in dicts, loops instead of
formulas that carry state along. What the ledger does with a history is compared with what this
does; where the two differ, one of them is wrong.

Amounts are minor units. It does not know the range of a `bigint`: Python's integers have none.
"""

from dataclasses import dataclass, field
from typing import Any

Purchase = dict[str, Any]


@dataclass
class Model:
    """A funding account with money on it and nothing else, as a customer would tell its story."""

    balance: int = 0
    purchases: dict[str, Purchase] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)  # Purchases with an open pull, oldest first.
    seen: dict[tuple[str, str], tuple[dict[str, Any], str]] = field(default_factory=dict)
    deposited: int = 0

    # --- messages --------------------------------------------------------------------------

    def tell(self, event: dict[str, Any]) -> str:
        """Take one network event or deposit as it is on the wire; return the word for it."""
        key = (event["source"], event["reference"])
        if key in self.seen:
            body, _ = self.seen[key]
            return "DUPLICATE" if body == event else "REJECTED"
        match event["type"]:
            case "AUTHORIZATION":
                descriptor = event.get("merchant", {}).get("descriptor", "")
                reason = self.authorize(
                    event["issuerTransactionToken"], event["amount"], descriptor
                )
                word = "DECLINED" if reason else "APPLIED"
            case "CLEARING":
                descriptor = event.get("merchant", {}).get("descriptor", "")
                token, amount = event["issuerTransactionToken"], event["amount"]
                self.clear(token, amount, event.get("final"), descriptor)
                word = "APPLIED"
            case "DEPOSIT":
                self.deposit(event["amount"])
                word = "APPLIED"
            case other:
                raise AssertionError(other)
        self.seen[key] = event, word
        return word

    def authorize(
        self, name: str, amount: int, descriptor: str = "", refusal: str | None = None
    ) -> str | None:
        """Ask for `amount`; return why it is declined, or None.

        `refusal` is what the checks before that of the funds say.
        """
        purchase = self._purchase(name, descriptor)
        wanted = purchase["authorized"] + amount
        required = purchase["settled"]
        if not purchase["closed"] and wanted > required:
            required = wanted
        already_asked_for = purchase["pulled"] - purchase["released"] + purchase["open"]
        missing = required - already_asked_for
        if purchase["descriptor"].endswith("002"):
            reason: str | None = "INSUFFICIENT_FUNDS"
        elif purchase["descriptor"].endswith("003"):
            reason = "CARD_PAUSED"
        elif refusal:
            reason = refusal
        elif max(missing, 0) > self.balance - self.owed():
            reason = "INSUFFICIENT_FUNDS"
        else:
            reason = None
        if reason is None:
            purchase["authorized"] = wanted
            purchase["asked"] = 0
            purchase["reason"] = None
            self._settle_up(name, may_pull=True)
        elif not purchase["authorized"] and not purchase["settled"]:
            purchase["asked"] = amount
            purchase["reason"] = reason
        return reason

    def clear(
        self,
        name: str,
        amount: int,
        final: bool | None = None,  # noqa: FBT001 - what a message says
        descriptor: str = "",
    ) -> None:
        """Record that the network took `amount`; nobody can refuse that."""
        purchase = self._purchase(name, descriptor)
        purchase["settled"] += amount
        purchase["clearings"] += 1
        if final is None:
            final = purchase["settled"] >= purchase["authorized"]
        if final:
            purchase["closed"] = True
        self._settle_up(name, may_pull=not purchase["descriptor"].endswith("002"))

    def deposit(self, amount: int) -> None:
        """Bring money to the account."""
        self.deposited += amount
        self.balance += amount
        self._retry_open_pulls()

    # --- what a reader sees ------------------------------------------------------------------

    def held(self) -> int:
        total = 0
        for purchase in self.purchases.values():
            funded = purchase["pulled"] - purchase["released"]
            if funded > purchase["settled"]:
                total += funded - purchase["settled"]
        return total

    def owed(self) -> int:
        total = 0
        for purchase in self.purchases.values():
            funded = purchase["pulled"] - purchase["released"]
            if funded < purchase["settled"]:
                total += purchase["settled"] - funded
        return total

    def settled(self) -> int:
        return sum(purchase["settled"] for purchase in self.purchases.values())

    def status(self, name: str) -> str:
        """Return the first line of the design's table that matches."""
        purchase = self.purchases[name]
        if purchase["reason"] and not purchase["settled"]:
            return "DECLINED"
        if purchase["settled"] > purchase["pulled"] - purchase["released"]:
            return "EXCEPTION"
        if purchase["closed"] and purchase["settled"]:
            return "SETTLED"
        if purchase["settled"]:
            return "PARTIALLY_SETTLED"
        return "VOIDED" if purchase["closed"] else "AUTHORIZED"

    def figures(self, name: str) -> dict[str, Any]:
        """Return one card transaction in the words of fixtures/lifecycles.json."""
        purchase = self.purchases[name]
        return {
            "status": self.status(name),
            "authorized": purchase["authorized"] or purchase["asked"],
            "pullCount": purchase["pulls"],
            "pulled": purchase["pulled"],
            "released": purchase["released"],
            "settled": purchase["settled"],
            "refunded": 0,
        }

    def account(self) -> dict[str, Any]:
        """Return the whole account in the words of fixtures/lifecycles.json."""
        return {
            "balance": self.balance,
            "held": self.held(),
            "owed": self.owed(),
            "transactions": {name: self.figures(name) for name in self.purchases},
        }

    # --- the rule ----------------------------------------------------------------------------

    def _purchase(self, name: str, descriptor: str) -> Purchase:
        if name not in self.purchases:
            self.purchases[name] = {
                "descriptor": descriptor,
                "authorized": 0,
                "asked": 0,
                "reason": None,
                "settled": 0,
                "clearings": 0,
                "closed": False,
                "pulled": 0,
                "pulls": 0,
                "released": 0,
                "open": 0,
            }
        return self.purchases[name]

    def _settle_up(self, name: str, *, may_pull: bool) -> None:
        """Bring what is funded to what is required; a pull is all or nothing."""
        purchase = self.purchases[name]
        required = purchase["settled"]
        if not purchase["closed"] and purchase["authorized"] > required:
            required = purchase["authorized"]
        funded = purchase["pulled"] - purchase["released"]
        if required < funded:
            purchase["released"] += funded - required
            self.balance += funded - required
            self._retry_open_pulls()
        elif required > funded and purchase["open"]:
            purchase["open"] = required - funded  # One open pull; it follows the shortfall.
        elif required > funded:
            missing = required - funded
            purchase["pulls"] += 1
            if may_pull and missing <= self.balance:
                self.balance -= missing
                purchase["pulled"] += missing
            else:
                purchase["open"] = missing
                self.queue.append(name)

    def _retry_open_pulls(self) -> None:
        """Pay open pulls oldest first; the first that cannot be paid keeps the others waiting."""
        while self.queue:
            purchase = self.purchases[self.queue[0]]
            if purchase["open"] > self.balance:
                return
            self.balance -= purchase["open"]
            purchase["pulled"] += purchase["open"]
            purchase["open"] = 0
            self.queue.pop(0)
