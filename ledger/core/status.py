"""Statuses of a card transaction, and what closes it."""

from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """The status of a card transaction; derived from the totals, never decided."""

    AUTHORIZED = "AUTHORIZED"
    PARTIALLY_SETTLED = "PARTIALLY_SETTLED"
    SETTLED = "SETTLED"
    REFUNDED = "REFUNDED"
    EXCEPTION = "EXCEPTION"
    DECLINED = "DECLINED"
    VOIDED = "VOIDED"


class Closure(StrEnum):
    """What closed a card transaction: no clearing is expected, but a late one is accepted."""

    CLEARED = "CLEARED"
    REVERSED = "REVERSED"
    EXPIRED = "EXPIRED"
    CARD_CLOSED = "CARD_CLOSED"
    REFUNDED = "REFUNDED"  # A refund without a purchase.
    CREDITED = "CREDITED"  # The last part of a credit that belongs to no purchase.


WITHOUT_PURCHASE: Final = frozenset({Closure.REFUNDED, Closure.CREDITED})
"""Closures that a purchase with the same token opens again."""
