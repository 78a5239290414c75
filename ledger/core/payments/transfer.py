"""Whether a transfer between two accounts of one owner is allowed, and why payments fail.

Pure. A transfer is all or nothing. Amounts are minor units of the currency that both accounts
share.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cardledger.ledger.core.money import MAX_AMOUNT


class FailureReason(StrEnum):
    """Why a transfer failed; no money moved."""

    # Checks of the ledger, in this order.
    ACCOUNT_INVALID = "ACCOUNT_INVALID"  # The source is not ACTIVE.
    ACCOUNT_CANNOT_RECEIVE = "ACCOUNT_CANNOT_RECEIVE"  # The destination is not ACTIVE, or is full.
    INSUFFICIENT_FUNDS = "INSUFFICIENT_FUNDS"  # Of the source, after what it owes.
    # Before the ledger received it.
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"  # It is now above a limit of its agent's policy.
    AGENT_NOT_ALLOWED = "AGENT_NOT_ALLOWED"  # Its agent is no longer allowed to make it.
    REJECTED_BY_PLATFORM = "REJECTED_BY_PLATFORM"  # The platform declined to approve it.
    # A defect: its message was quarantined.
    INTERNAL_ERROR = "INTERNAL_ERROR"
    # After the ledger had debited the source, which gets it back.
    CANCELLED = "CANCELLED"  # By the platform, or by the user.
    REJECTED_BY_BANK = "REJECTED_BY_BANK"  # By the bank of the external account.
    COLLECTION_FAILED = "COLLECTION_FAILED"  # The external account did not pay.
    PAYOUT_RETURNED = "PAYOUT_RETURNED"  # By the receiving bank, after completion.
    COUNTERPARTY_POST_TX_FAILED = "COUNTERPARTY_POST_TX_FAILED"  # It was not delivered.
    COMPLIANCE_REJECTED = "COMPLIANCE_REJECTED"
    QUOTE_EXECUTION_FAILED = "QUOTE_EXECUTION_FAILED"
    QUOTE_EXPIRED = "QUOTE_EXPIRED"
    # Of a payment that arrives and needs the platform's approval.
    MISSING_MANDATORY_PAYEE_DATA = "MISSING_MANDATORY_PAYEE_DATA"
    PAYMENT_APPROVAL_WEBHOOK_ERROR = "PAYMENT_APPROVAL_WEBHOOK_ERROR"
    PAYMENT_APPROVAL_TIMED_OUT = "PAYMENT_APPROVAL_TIMED_OUT"


DECIDED_BY_THE_LEDGER: Final = frozenset(
    {
        FailureReason.ACCOUNT_INVALID,
        FailureReason.ACCOUNT_CANNOT_RECEIVE,
        FailureReason.INSUFFICIENT_FUNDS,
    }
)
"""The reasons that `refusal` returns; the others fail a transfer without a check of its funds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Funds:
    """What a decision reads of an account."""

    is_usable: bool
    balance: int
    held: int
    owed: int


def refusal(amount: int, source: Funds, destination: Funds) -> FailureReason | None:
    """Return why `amount` must not move from `source` to `destination`; None: it may."""
    return exchange_refusal(amount, source, amount, destination)


def exchange_refusal(
    sent: int, source: Funds, received: int, destination: Funds
) -> FailureReason | None:
    """Return why `sent` must not become `received` on `destination`; None: it may."""
    if not source.is_usable:
        return FailureReason.ACCOUNT_INVALID
    if not can_receive(received, destination):
        return FailureReason.ACCOUNT_CANNOT_RECEIVE
    return debit_refusal(sent, source)


def can_receive(amount: int, destination: Funds) -> bool:
    """Return whether `destination` is usable, and has room for `amount`."""
    # Holds can be released at any time, so the balance must have room for them.
    room = MAX_AMOUNT - destination.balance - destination.held
    return destination.is_usable and amount <= room


def debit_refusal(amount: int, source: Funds) -> FailureReason | None:
    """Return why `amount` must not leave `source`; None: it may."""
    if not source.is_usable:
        return FailureReason.ACCOUNT_INVALID
    # As for an authorization: money that is owed for earlier exceptions cannot be moved away.
    if amount > max(source.balance - source.owed, 0):
        return FailureReason.INSUFFICIENT_FUNDS
    return None
