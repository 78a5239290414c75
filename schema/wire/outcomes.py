"""What became of a network event."""

from enum import StrEnum

from schema.wire.card_transactions import CardTransactionResource
from schema.wire.common import Response


class OutcomeType(StrEnum):
    """One per event, in order."""

    APPLIED = "APPLIED"
    DECLINED = "DECLINED"
    DUPLICATE = "DUPLICATE"
    IGNORED = "IGNORED"
    PARKED = "PARKED"
    REJECTED = "REJECTED"


class RejectionReason(StrEnum):
    """Why an event could not be applied; it is kept with this reason."""

    MALFORMED = "MALFORMED"  # Not JSON, or not of the shape of a network event.
    UNKNOWN_CARD = "UNKNOWN_CARD"  # No such card, or not a card of the sender.
    UNKNOWN_ACCOUNT = "UNKNOWN_ACCOUNT"  # No such account, or not an account of the sender.
    INVALID_CURRENCY = "INVALID_CURRENCY"  # Not the currency of the card.
    KEY_REUSED = "KEY_REUSED"  # Same source and reference, another body.
    AMOUNT_OUT_OF_RANGE = "AMOUNT_OUT_OF_RANGE"  # A total would not fit 63 bits.
    INTERNAL_ERROR = "INTERNAL_ERROR"  # Our fault; it can be sent again once mended.


class Outcome(Response):
    """The answer to one network event.

    `firstOutcome` comes with `DUPLICATE`: what the same event led to the first time.
    `detail` says in words what to change.
    """

    reference: str | None
    outcome: OutcomeType
    reason: str | None = None
    detail: str | None = None
    first_outcome: OutcomeType | None = None
    card_transaction: CardTransactionResource | None = None
