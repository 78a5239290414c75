"""A second implementation of the money rule, written from the specification.

It is slow, simple and complete: one funding account, its card transactions in dicts, loops instead
of incremental totals. Tests compare a ledger with it; where the two differ, one of them is wrong.

Amounts are minor units. The model does not limit them to the range of a `bigint`.
"""

from dataclasses import dataclass
from typing import Any, Final

from cardledger.ledger.testing import late, purchases
from cardledger.ledger.testing.account import MOVES, Account, Event, due_to_network
from cardledger.ledger.testing.purchases import Purchase

_OF_EITHER_DIRECTION: Final = {"CLEARING", "CLEARING_REVERSAL"}
"""About a credit these move money the other way round."""
_REOPENABLE: Final = {"REVERSED", "EXPIRED", "REFUNDED", "CREDITED"}


@dataclass
class Model(Account):
    """A funding account with one card, which processes events."""

    # --- messages --------------------------------------------------------------------------

    def submit(self, event: Event) -> str:
        """Process an event; return its outcome."""
        key = late.key_of(event)
        if event["type"] == late.TIMEOUT_REVERSAL and key not in self.seen:
            authorization = event["authorization"]
            if late.key_of(authorization) not in self.seen:
                return self._decline_late(authorization)
        if key in self.seen:
            if self.seen[key] == event:
                return "DUPLICATE"
            self._suspend(event)
            return "REJECTED"
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
        if event["type"] == "WRITE_OFF":
            return self._write_off(event)
        if event["type"] == late.TIMEOUT_REVERSAL:
            return self._take_back(event)
        return self._network(event)

    def _decline_late(self, authorization: Event) -> str:
        """Decide an authorization in the place of its own message, which comes too late."""
        self.late_reason = "DECISION_TIMEOUT"
        outcome = self.submit(authorization)
        self.late_reason = None
        return outcome

    def _take_back(self, event: Event) -> str:
        """Take back an authorization whose approval could not be reported in time."""
        purchase = self.purchases.get(event["issuerTransactionToken"])
        if purchase is None:
            return "IGNORED"
        released = purchase["released"]
        if not late.take_back(
            purchase,
            event["authorization"],
            is_card_closed=self.card_state == "CLOSED",
            reverse_clearing=self._reverse_clearing,
        ):
            return "IGNORED"
        self._settle_up(purchase, self.arrivals)
        if purchase["released"] > released:
            self._pay_debts()
        return "APPLIED"

    def _network(self, event: Event) -> str:
        name = event["issuerTransactionToken"]
        if self._waits(event):
            self.parked.append((self.arrivals, self._with_due(event)))
            return "PARKED"
        is_new = name not in self.purchases
        purchase = self._purchase(name, event)
        outcome = self._apply_and_note(purchase, event, self.arrivals)
        if outcome == "IGNORED":
            if is_new:
                del self.purchases[name]
            return outcome
        for number, waiting in list(self.parked):
            if waiting["issuerTransactionToken"] == name and not self._waits(waiting):
                self.parked.remove((number, waiting))
                self._apply_and_note(purchase, waiting, number)
        return outcome

    def _apply_and_note(self, purchase: Purchase, event: Event, number: int) -> str:
        before = late.total(purchase)
        outcome = self._apply(purchase, event, number)
        if outcome == "APPLIED":
            late.note(purchase, event, before)
        return outcome

    def _waits(self, event: Event) -> bool:
        """Whether `event` must wait for another event to arrive first."""
        known = self.purchases.get(event["issuerTransactionToken"], {})
        if "expiresAt" in event:
            return False  # Sent by the ledger's own scheduler for an authorization that it knows.
        match event["type"]:
            case "AUTHORIZATION_REVERSAL" | "AUTHORIZATION_EXPIRY" | "AUTHORIZATION_ADVICE":
                return not known.get("isAuthorizationKnown") and known.get("credit") is None
            case "CLEARING_REVERSAL":
                total = "refunded" if known and purchases.is_credit(known) else "settled"
                return bool(event["amount"] > known.get(total, 0))
            case "RETURN_REVERSAL":
                return bool(event["amount"] > known.get("refunded", 0))
        return False

    def _apply(self, purchase: Purchase, event: Event, number: int) -> str:  # noqa: C901, PLR0912 - one branch a type
        amount: Any = event.get("amount")  # None only in a reversal and an expiry.
        released = purchase["released"]
        left = purchase["authorized"] - purchase["settled"]
        left = max(left, 0)
        if purchases.is_credit(purchase) and event["type"] in purchases.OF_A_CREDIT:
            return self._apply_to_credit(purchase, event, number)
        match event["type"]:
            case "CREDIT_AUTHORIZATION":
                return self._authorize_credit(purchase, amount)
            case "CREDIT_AUTHORIZATION_ADVICE":
                purchases.advise_credit(purchase, amount)
            case "AUTHORIZATION" | "AUTHORIZATION_INCREMENT" | "FINANCIAL_AUTHORIZATION":
                return self._authorize(purchase, event, number)
            case "STAND_IN_AUTHORIZATION":
                self._approve(purchase, purchase["authorized"] + amount)
            case "AUTHORIZATION_ADVICE":
                if purchase["reason"]:
                    return "IGNORED"
                self._approve(purchase, amount)
                if amount <= purchase["settled"]:
                    purchases.close(purchase, "REVERSED")
            case "AUTHORIZATION_REVERSAL":
                if purchase["closed"] or left == 0:
                    return "IGNORED"
                taken = left if amount is None else min(amount, left)
                purchase["authorized"] -= taken
                if taken == left:
                    purchases.close(purchase, "REVERSED")
            case "AUTHORIZATION_EXPIRY":
                if purchase["closed"] or not (purchase["authorized"] or purchase["settled"]):
                    return "IGNORED"
                purchase["authorized"] -= left
                purchases.close(purchase, "EXPIRED")
            case "CLEARING":
                self._clear(purchase, amount, event.get("final"))
            case "CLEARING_REVERSAL":
                self._reverse_clearing(purchase, amount)
            case "RETURN" | "FINANCIAL_CREDIT_AUTHORIZATION":
                if not purchase["authorized"] and not purchase["settled"]:
                    is_refund = event["type"] == "RETURN"
                    purchases.close(purchase, "REFUNDED" if is_refund else "CREDITED")
                purchase["refunded"] += amount
                purchase["refunds"] += 1
                self.money += amount - self._collect_loss(purchase, amount)
            case "RETURN_REVERSAL":
                purchase["refunded"] -= amount
                if purchases.is_credit(purchase) and not purchases.expects_more(purchase):
                    purchases.close(purchase, "REVERSED")
                if amount <= self._pullable(purchase):
                    self.money -= amount
                else:
                    purchase["unpaid"] += amount
            case "PULL_CONFIRMATION":
                return self._confirm(purchase, event, number)
        self._settle_up(purchase, number)
        if event["type"] in {"RETURN", "FINANCIAL_CREDIT_AUTHORIZATION"} or (
            purchase["released"] > released
        ):
            self._pay_debts()
        return "APPLIED"

    # --- authorizations ----------------------------------------------------------------------

    def _authorize(self, purchase: Purchase, event: Event, number: int) -> str:
        amount = event["amount"]
        clears = event["type"] == "FINANCIAL_AUTHORIZATION"
        asked = purchases.asked_for(purchase, amount, clears=clears)
        self.reason = self._decline_reason(purchase, amount, asked) or self.late_reason
        if self.reason and purchases.stays_credit(purchase):
            return "DECLINED"
        purchase["isAuthorizationKnown"] = True
        if self.reason:
            if not purchase["authorized"] and not purchase["clearings"] and not purchase["refunds"]:
                purchase["asked"] = amount
                purchase["reason"] = self.reason
            return "DECLINED"
        self._approve(purchase, purchase["authorized"] + amount)
        slow = purchase["descriptor"][-3:] in {"005", "006"}
        self._settle_up(purchase, number, money=self.money, slow=slow, pays_open=asked > 0)
        if clears:
            self._clear(purchase, amount, final=True)
            self._settle_up(purchase, number, money=self.money)
        return "APPLIED"

    def _decline_reason(self, purchase: Purchase, amount: int, asked: int) -> str | None:
        if purchase["descriptor"].endswith("002"):
            return "INSUFFICIENT_FUNDS"
        if purchase["descriptor"].endswith("003") or self.card_state == "FROZEN":
            return "CARD_PAUSED"
        if self.card_state != "ACTIVE":
            return "CARD_NOT_ACTIVE"
        if self.max_spend is not None and amount > self.max_spend:
            return "SPEND_LIMIT_EXCEEDED"
        if asked > max(self.money - self.owed(), 0):
            return "INSUFFICIENT_FUNDS"
        return None

    # --- credits -----------------------------------------------------------------------------

    def _authorize_credit(self, purchase: Purchase, amount: int) -> str:
        self.reason = self._credit_decline_reason(purchase) or self.late_reason
        return purchases.ask_credit(purchase, amount, self.reason)

    def _credit_decline_reason(self, purchase: Purchase) -> str | None:
        if purchase["descriptor"].endswith("002"):
            return "INSUFFICIENT_FUNDS"
        if purchase["descriptor"].endswith("003") or self.card_state == "FROZEN":
            return "CARD_PAUSED"
        return None if self.card_state == "ACTIVE" else "CARD_NOT_ACTIVE"

    def _apply_to_credit(self, purchase: Purchase, event: Event, number: int) -> str:
        """Apply an event that names no direction to an authorized credit."""
        if event["type"] == "CLEARING_REVERSAL":
            return self._apply(purchase, {**event, "type": "RETURN_REVERSAL"}, number)
        if event["type"].startswith("AUTHORIZATION_"):
            return "APPLIED" if purchases.change_credit(purchase, event) else "IGNORED"
        purchases.clear_credit(purchase, event)
        self.money += event["amount"] - self._collect_loss(purchase, event["amount"])
        self._settle_up(purchase, number)
        self._pay_debts()
        return "APPLIED"

    # --- events that have happened at the network --------------------------------------------

    def _approve(self, purchase: Purchase, total: int) -> None:
        purchase["isAuthorizationKnown"] = purchase["wasApproved"] = True
        purchase["authorized"] = total
        purchase["asked"] = 0
        purchase["reason"] = None
        if purchase["closed"] in _REOPENABLE:
            purchase["closed"] = None

    def _clear(self, purchase: Purchase, amount: int, final: bool | None) -> None:  # noqa: FBT001 - a field of the message
        purchase["settled"] += amount
        purchase["clearings"] += 1
        if final is None:
            final = purchase["settled"] >= purchase["authorized"]
        if final:
            purchase["closed"] = "CLEARED"
        elif purchase["closed"] in {"REFUNDED", "CREDITED"}:
            purchase["closed"] = None

    def _reverse_clearing(self, purchase: Purchase, amount: int) -> None:
        """Give back what was not paid first, then what was written off, then what was paid."""
        back = amount - min(amount, purchases.overdrawn(purchase))
        purchase["settled"] -= amount
        if not purchases.expects_more(purchase):
            purchases.close(purchase, "REVERSED")
        forgiven = min(back, purchase["clearingsWrittenOff"])
        purchase["clearingsWrittenOff"] -= forgiven
        # What the customer kept of a reversed refund: the hold for this clearing pays it.
        kept = min(back - forgiven, purchase["debitsWrittenOff"])
        purchase["debitsWrittenOff"] -= kept
        self._release(purchase, kept)

    def _collect_loss(self, purchase: Purchase, refund: int) -> int:
        """Return what of `refund` makes good what was written off of the purchase."""
        of_clearings = min(refund, purchase["clearingsWrittenOff"])
        of_debits = min(refund - of_clearings, purchase["debitsWrittenOff"])
        purchase["clearingsWrittenOff"] -= of_clearings
        purchase["debitsWrittenOff"] -= of_debits
        purchase["pulled"] += of_clearings
        return int(of_clearings + of_debits)

    def _write_off(self, event: Event) -> str:
        """Give up an amount that is owed: it needs no funding any more."""
        purchase = self.purchases.get(event["issuerTransactionToken"])
        amount = event["amount"]
        if purchase is None or amount > purchases.overdrawn(purchase) + purchase["unpaid"]:
            return "REJECTED"
        of_debits = min(amount, purchase["unpaid"])
        purchase["unpaid"] -= of_debits
        purchase["debitsWrittenOff"] += of_debits
        purchase["clearingsWrittenOff"] += amount - of_debits
        purchase["open"] = purchases.missing(purchase)
        self._note_debt(purchase, self.arrivals)
        self._pay_debts()
        return "APPLIED"

    def _close_card(self) -> None:
        for purchase in list(self.purchases.values()):
            if purchases.expects_more(purchase) and not purchase["closed"]:
                if purchases.is_credit(purchase):
                    purchase["credit"] = min(purchase["credit"], purchase["refunded"])
                purchase["authorized"] = min(purchase["authorized"], purchase["settled"])
                purchase["closed"] = "CARD_CLOSED"
                purchase["applied"].append(late.CLOSED_CARD)
                self._settle_up(purchase, self.arrivals)

    def _confirm(self, purchase: Purchase, event: Event, number: int) -> str:
        if not purchase["pendingCount"]:
            return "IGNORED"
        purchase["pendingCount"] -= 1
        amount = min(event["amount"], purchase["pending"])
        purchase["pending"] -= amount
        if not event["succeeded"]:
            # The account has its money back: older debts are paid first, this one is open again.
            purchase["pulled"] -= amount
            self.money += amount
            purchase["open"] = purchases.missing(purchase)
            self._note_debt(purchase, number)
            self._pay_debts(ahead_of=purchase["name"])
        return "APPLIED"

    # --- the money rule ----------------------------------------------------------------------

    def _pullable(self, purchase: Purchase) -> int:
        return 0 if purchase["descriptor"].endswith("002") else self.money

    def _settle_up(
        self,
        purchase: Purchase,
        number: int,
        *,
        money: int | None = None,
        slow: bool = False,
        pays_open: bool = False,
    ) -> None:
        """Pull or release the difference between required and funded; a pull is all or nothing.

        A pull that is open waits for its turn, unless an approval `pays_open`.
        """
        if money is None:
            money = self._pullable(purchase)
        missing = purchases.missing(purchase)
        surplus = purchases.covered(purchase) - purchases.required(purchase)
        was_open = purchase["open"]
        if was_open:
            purchase["open"] = missing  # At most one pull is open; its amount is the shortfall.
            if pays_open and missing <= money:
                self._pay_open(purchase)
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
            self._release(purchase, surplus)
            self.money += surplus
        if surplus > 0 or (was_open and was_open != missing):
            self._pay_debts()  # The balance rose, or less is due.

    def _release(self, purchase: Purchase, amount: int) -> None:
        """Lower what is funded; what is released needs no confirmation any more."""
        purchase["released"] += amount
        funded = purchase["pulled"] - purchase["released"]
        purchase["pending"] = min(purchase["pending"], funded)

    def _note_debt(self, purchase: Purchase, number: int) -> None:
        if purchase["open"] or purchase["unpaid"]:
            self.debts.setdefault(purchase["name"], number)
        else:
            self.debts.pop(purchase["name"], None)

    def _pay_debts(self, ahead_of: str | None = None) -> None:
        """Pay debts, oldest first; a debt that cannot be paid blocks the later ones."""
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
            self._pay_open(purchase)
            del self.debts[name]

    def _pay_open(self, purchase: Purchase) -> None:
        self.money -= purchase["open"]
        purchase["pulled"] += purchase["open"]
        purchase["open"] = 0

    def _purchase(self, name: str, event: Event) -> Purchase:
        return self.purchases.setdefault(name, purchases.new(name, event))

    def _suspend(self, event: Event) -> None:
        """Keep the money of an event whose key is used; a repetition of it moved it once."""
        facts = ("source", "reference", "type", "amount")
        if event["type"] not in MOVES:
            return
        if all(any(event[name] != other[name] for name in facts) for other in self.rejected):
            self.rejected.append(self._with_due(event))

    def _with_due(self, event: Event) -> Event:
        """Return `event` with what it has made due to the network, by what is known now."""
        known = self.purchases.get(event["issuerTransactionToken"])
        due = due_to_network(event)
        if known and purchases.is_credit(known) and event["type"] in _OF_EITHER_DIRECTION:
            due = -due
        return {**event, "due": due}
