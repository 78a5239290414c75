"""A second implementation of payments, written from the specification: slow, simple, in loops.

Owners of one platform have an account in each currency. Amounts are minor units, times whole delays
of the sandbox. Tests compare a ledger with it; where the two differ, one of them is wrong.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

Account = tuple[str, str]
"""An owner, or a system account, and a currency."""

PLATFORM: Final = "platform"
"""The owner that is credited with fees."""

# What becomes of a payout, by the last digits of the account: after how many delays, and why.
_TRANSFERS: Final = {
    "002": (0, "INSUFFICIENT_FUNDS"),
    "003": (0, "ACCOUNT_INVALID"),
    "004": (0, "REJECTED_BY_BANK"),
    "005": (1, "REJECTED_BY_BANK"),
}
_QUOTES: Final = {
    "002": (0, "QUOTE_EXECUTION_FAILED"),
    "004": (0, "COUNTERPARTY_POST_TX_FAILED"),
    "006": (0, "CANCELLED"),
    "007": (0, "COUNTERPARTY_POST_TX_FAILED"),
}


@dataclass
class Payment:
    """A payout; `received` in `currency`, which is that of its sender unless it is converted.

    With `is_funded` its amount arrives from outside in the moment in which it is debited. A pull
    credits its `sender` instead, and has neither a fee nor another currency.
    """

    sender: Account
    amount: int
    fee: int
    received: int
    currency: str
    ending: str
    is_quoted: bool
    is_funded: bool = False
    is_pull: bool = False
    status: str = "PENDING"
    reason: str | None = None
    refund: str | None = None
    waits: int = 0  # Delays until the next step; 0: none is due.


@dataclass
class PaymentModel:
    """The money of a platform and of its customers."""

    money: Counter[Account] = field(default_factory=Counter)
    system: Counter[Account] = field(default_factory=Counter)  # What is on the credit side.
    payments: dict[str, Payment] = field(default_factory=dict)

    def fund(self, owner: str, currency: str, amount: int) -> None:
        """Let money arrive."""
        self.money[owner, currency] += amount
        self.system["SANDBOX_FUNDING", currency] -= amount

    def pay_out(self, name: str, payment: Payment) -> None:
        """Pay out to an external account."""
        self.payments[name] = payment
        if payment.is_funded:
            self.fund(*payment.sender, payment.amount)
        if payment.amount > self.money[payment.sender]:
            payment.status, payment.reason = "FAILED", "INSUFFICIENT_FUNDS"
            return
        self.money[payment.sender] -= payment.amount
        self._hold(payment, 1)
        ending = payment.ending
        delays, reason = (_QUOTES if payment.is_quoted else _TRANSFERS).get(ending, (0, None))
        if delays:
            payment.waits = delays
        elif reason:
            self._fail(payment, reason)
        elif payment.is_quoted and ending == "003":
            payment.status, payment.waits = "PROCESSING", 12
        else:
            self._complete(payment)

    def pull(self, name: str, payment: Payment) -> None:
        """Collect from an external account."""
        self.payments[name] = payment
        delays, reason = _TRANSFERS.get(payment.ending, (0, None))
        if delays:
            payment.waits = delays
        elif reason:
            self._fail(payment, reason)
        else:
            payment.status = "COMPLETED"
            self.fund(*payment.sender, payment.amount)

    def exchange(self, payment: Payment) -> bool:
        """Convert between two accounts of the sender; return whether it had the money."""
        if payment.amount > self.money[payment.sender]:
            return False
        owner, currency = payment.sender
        self.money[payment.sender] -= payment.amount
        self.money[owner, payment.currency] += payment.received
        self.system["FX", currency] += payment.amount - payment.fee
        self.system["FX", payment.currency] -= payment.received
        self.money[PLATFORM, currency] += payment.fee
        return True

    def pay(self, sender: Account, receiver: str, amount: int) -> bool:
        """Pay another owner; return whether the sender had the money."""
        if amount > self.money[sender]:
            return False
        self.money[sender] -= amount
        self.money[receiver, sender[1]] += amount
        return True

    def cancel(self, name: str) -> bool:
        """Cancel a payment that was not handed over; return whether it could be."""
        payment = self.payments[name]
        if payment.status != "PENDING":
            return False
        self._fail(payment, "CANCELLED")
        return True

    def pass_delays(self, number: int) -> None:
        """Let time pass."""
        for _ in range(number):
            for payment in self.payments.values():
                if payment.waits:
                    payment.waits -= 1
                    if not payment.waits:
                        self._continue(payment)

    def _continue(self, payment: Payment) -> None:
        if payment.status == "COMPLETED":
            # The bank has sent it back: the customer gets all but the fee, which was earned.
            payment.status, payment.reason = "FAILED", "PAYOUT_RETURNED"
            payment.refund = "COMPLETED"
            self.money[payment.sender] += payment.amount - payment.fee
            self.system["SANDBOX_FUNDING", payment.currency] -= payment.received
            self._convert(payment, -1)
        elif payment.status == "PROCESSING":
            self._complete(payment)
        else:
            self._fail(payment, "REJECTED_BY_BANK")

    def _complete(self, payment: Payment) -> None:
        payment.status = "COMPLETED"
        payment.waits = 1 if payment.is_quoted and payment.ending == "005" else 0
        self._hold(payment, -1, converts=False)
        self.system["SANDBOX_FUNDING", payment.currency] += payment.received
        self.money[PLATFORM, payment.sender[1]] += payment.fee

    def _fail(self, payment: Payment, reason: str) -> None:
        payment.status, payment.reason, payment.waits = "FAILED", reason, 0
        if payment.is_pull:
            return  # Nothing has moved.
        if payment.is_quoted and payment.ending == "007":
            payment.refund = "FAILED"
            return
        payment.refund = "COMPLETED"
        self._hold(payment, -1)
        self.money[payment.sender] += payment.amount

    def _hold(self, payment: Payment, sign: int, *, converts: bool = True) -> None:
        """Put a payment into clearing, in the currency in which it goes out, or take it away."""
        self.system["OUTBOUND_CLEARING", payment.currency] += sign * payment.received
        self.system["OUTBOUND_CLEARING", payment.sender[1]] += sign * payment.fee
        if converts:
            self._convert(payment, sign)

    def _convert(self, payment: Payment, sign: int) -> None:
        if payment.currency != payment.sender[1]:
            self.system["FX", payment.sender[1]] += sign * (payment.amount - payment.fee)
            self.system["FX", payment.currency] -= sign * payment.received

    def totals(self) -> dict[Account, int]:
        """Return the system accounts that are not zero."""
        return {account: amount for account, amount in self.system.items() if amount}
