"""Whether a transfer between two accounts of one customer is allowed.

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
    if not source.is_usable:
        return FailureReason.ACCOUNT_INVALID
    # Holds can be released at any time, so the balance must have room for them.
    room = MAX_AMOUNT - destination.balance - destination.held
    if not destination.is_usable or amount > room:
        return FailureReason.ACCOUNT_CANNOT_RECEIVE
    # As for an authorization: money that is owed for earlier exceptions cannot be moved away.
    if amount > max(source.balance - source.owed, 0):
        return FailureReason.INSUFFICIENT_FUNDS
    return None
