"""Money between two accounts of one customer, in one currency: may it move?

Pure. All or nothing: a transfer that is refused has not happened, not even in part.
Amounts are minor units of the currency that both accounts share.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cardledger.ledger.core.money import MAX_AMOUNT


class FailureReason(StrEnum):
    """Why a transfer failed; nothing moved."""

    # What the ledger finds when it comes to it, in the order in which it looks.
    ACCOUNT_INVALID = "ACCOUNT_INVALID"  # The source is not ACTIVE.
    ACCOUNT_CANNOT_RECEIVE = "ACCOUNT_CANNOT_RECEIVE"  # The destination is not, or is full.
    INSUFFICIENT_FUNDS = "INSUFFICIENT_FUNDS"  # The source has less than that to spare.
    # What became of it before it came to the ledger.
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"  # A limit of its agent's policy is below it by now.
    AGENT_NOT_ALLOWED = "AGENT_NOT_ALLOWED"  # Its agent may not make it any more.
    REJECTED_BY_PLATFORM = "REJECTED_BY_PLATFORM"  # Asked for its approval, the platform said no.
    # What should not be: its message was set aside.
    INTERNAL_ERROR = "INTERNAL_ERROR"


DECIDED_BY_THE_LEDGER: Final = frozenset(
    {
        FailureReason.ACCOUNT_INVALID,
        FailureReason.ACCOUNT_CANNOT_RECEIVE,
        FailureReason.INSUFFICIENT_FUNDS,
    }
)
"""Reasons that `refusal` gives; the others end a transfer about which it was not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Funds:
    """What a decision reads of an account."""

    is_usable: bool
    balance: int
    held: int
    owed: int


def refusal(amount: int, source: Funds, destination: Funds) -> FailureReason | None:
    """Return why `amount` does not move from `source` to `destination`; None: it does."""
    if not source.is_usable:
        return FailureReason.ACCOUNT_INVALID
    # What is held can always go back, so there has to be room for it as well.
    room = MAX_AMOUNT - destination.balance - destination.held
    if not destination.is_usable or amount > room:
        return FailureReason.ACCOUNT_CANNOT_RECEIVE
    # As for an authorization: what is owed for earlier exceptions is not there to be moved away.
    if amount > max(source.balance - source.owed, 0):
        return FailureReason.INSUFFICIENT_FUNDS
    return None
