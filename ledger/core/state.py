"""The state of one card transaction: totals of its events, and what follows from them.

Amounts are minor units of the card's billing currency (ISO 4217).
"""

from dataclasses import dataclass
from typing import Final

from cardledger.ledger.core import events
from cardledger.ledger.core.status import Closure, Status


@dataclass(slots=True, kw_only=True)
class CardTransaction:
    """Running totals: all that the next decision and every roll-up need.

    A value: only `fold` changes it, before returning it.
    """

    sequence: int = 0  # Number of events folded so far.
    authorizations: int = 0  # Approved, declined or advised; without one declined beside a credit.
    authorized: int = 0
    settled: int = 0
    settlement_count: int = 0
    refunded: int = 0
    refund_count: int = 0
    pulled: int = 0  # Gross: releases never lower it.
    pull_count: int = 0  # Pulls opened, whether or not they could be paid at once.
    pending: int = 0  # Part of `pulled` that is not confirmed yet.
    pending_count: int = 0
    open_pull: int = 0  # What the funding account still has to pay; at most one pull is open.
    unpaid: int = 0  # Refund reversals that the funding account still has to pay.
    released: int = 0
    release_count: int = 0
    closed_by: Closure | None = None  # None: open.
    declined: int = 0  # Amount of the declined authorization, while none is approved.
    decline_reason: events.DeclineReason | None = None
    written_off: int = 0  # Of what was owed, less what came back of it.
    debits_written_off: int = 0  # Part of `written_off` that was of refund reversals.
    credit_authorized: int | None = None  # None: no authorization of a credit is known.

    @property
    def closed(self) -> bool:
        """Whether no further clearing is expected."""
        return self.closed_by is not None

    @property
    def stands(self) -> bool:
        """Whether it can still expire or be cancelled; a declined authorization cannot."""
        if self.closed:
            return False
        if self.authorized or self.settled:
            return True
        return self.is_credit and bool(self.credit_authorized or self.refunded)

    @property
    def funded(self) -> int:
        """What the funding account has paid, net of releases."""
        return self.pulled - self.released

    @property
    def required(self) -> int:
        """What has to be paid, net of releases, or written off: the money rule."""
        if self.closed_by is None and self.authorized > self.settled:
            return self.authorized
        return self.settled

    @property
    def clearings_written_off(self) -> int:
        """Part of what has settled that the funding account does not have to pay."""
        return self.written_off - self.debits_written_off

    @property
    def ahead(self) -> int:
        """What is paid or written off beyond what has settled; negative: what is not."""
        if self.written_off:
            return self.pulled - self.released - self.settled + self.clearings_written_off
        return self.pulled - self.released - self.settled

    @property
    def outstanding(self) -> int:
        """What is authorized and has not cleared."""
        if self.is_credit:
            return max((self.credit_authorized or 0) - self.refunded, 0)
        return max(self.authorized - self.settled, 0)

    @property
    def is_credit(self) -> bool:
        """Whether messages that name no direction are about a credit: nothing else is known."""
        return (
            self.credit_authorized is not None
            and not self.authorizations
            and not self.settlement_count
        )

    @property
    def has_credit(self) -> bool:
        """Whether what the network gave is a credit that belongs to no purchase, not a refund."""
        return self.closed_by is Closure.CREDITED or self.is_credit

    @property
    def credited(self) -> int:
        """The amount of a credit that belongs to no purchase; `refunded` includes it."""
        return self.refunded if self.has_credit else 0

    @property
    def pays_account(self) -> bool:
        """Whether its direction is CREDIT: the account is paid, and does not pay."""
        return self.has_credit or not (self.authorizations or self.settlement_count)

    @property
    def held(self) -> int:
        """Funds held for clearings to come."""
        if self.written_off:
            return max(self.ahead, 0)
        return max(self.pulled - self.released - self.settled, 0)

    @property
    def overdrawn(self) -> int:
        """What clearings took beyond what the funding account has paid and what is written off."""
        return max(-self.ahead, 0)

    @property
    def owed(self) -> int:
        """What the network took and the funding account still has to pay."""
        return self.overdrawn + self.unpaid

    @property
    def dues(self) -> tuple[int, int, int]:
        """Its share of the account's totals: `held`, `owed` and `pending`."""
        ahead = self.pulled - self.released - self.settled
        if self.written_off:
            ahead += self.clearings_written_off
        if ahead < 0:
            return 0, self.unpaid - ahead, self.pending
        return ahead, self.unpaid, self.pending

    @property
    def in_debt(self) -> bool:
        """Whether the funding account still has something to pay."""
        return bool(self.open_pull or self.unpaid)

    @property
    def status(self) -> Status:
        """The status: the first line that matches."""
        if self.decline_reason and not (self.settlement_count or self.refund_count):
            return Status.DECLINED
        if self.in_debt:
            return Status.EXCEPTION
        if self.refunded and self.has_credit:
            return Status.SETTLED if self.closed else Status.PARTIALLY_SETTLED
        if self.closed and self.refunded and self.refunded >= self.settled:
            return Status.REFUNDED
        if self.settled:
            return Status.SETTLED if self.closed else Status.PARTIALLY_SETTLED
        return Status.VOIDED if self.closed else Status.AUTHORIZED

    @property
    def status_reason(self) -> str | None:
        """Why it is VOIDED; a reversed clearing counts as a reversal."""
        if self.status is not Status.VOIDED:
            return None
        known = {Closure.EXPIRED, Closure.CARD_CLOSED}
        return self.closed_by if self.closed_by in known else Closure.REVERSED

    @property
    def authorized_amount(self) -> int:
        """The amount that readers see: a declined authorization keeps its amount.

        A credit with one message authorizes what it credits.
        """
        amount = self.authorized or self.declined
        if amount or not self.has_credit:
            return amount
        return self.refunded if self.credit_authorized is None else self.credit_authorized

    @property
    def settled_amount(self) -> int:
        """The settled amount that readers see: of a credit what was credited."""
        return self.refunded if self.has_credit else self.settled

    @property
    def settlements(self) -> int:
        """The number of clearings that readers see: of a credit the number of its parts."""
        return self.refund_count if self.has_credit else self.settlement_count


UNKNOWN: Final = CardTransaction()
"""The state before the first event."""
