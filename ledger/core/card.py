"""The states of a card, as the rules see them."""

from enum import StrEnum


class CardState(StrEnum):
    """Only an `ACTIVE` card may be authorized; every other fact is recorded in any state."""

    PENDING_KYC = "PENDING_KYC"
    PROCESSING = "PROCESSING"
    ACTIVE = "ACTIVE"
    FROZEN = "FROZEN"
    CLOSED = "CLOSED"
