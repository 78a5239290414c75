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
    ACCOUNT_NOT_ACTIVE = "ACCOUNT_NOT_ACTIVE"  # Nobody could get at money that is put there.
    UNKNOWN_TRANSFER = "UNKNOWN_TRANSFER"  # No such transfer, or none that is to be carried out.
    INVALID_CURRENCY = "INVALID_CURRENCY"  # Not the currency of the card.
    OUTDATED = "OUTDATED"  # Not at the sequence that the sender expected any more.
    KEY_REUSED = "KEY_REUSED"  # Same source and reference, another body.
    AMOUNT_OUT_OF_RANGE = "AMOUNT_OUT_OF_RANGE"  # A total would not fit 63 bits.
    INTERNAL_ERROR = "INTERNAL_ERROR"  # Our fault; it can be sent again once mended.


class Remark(StrEnum):
    """What is worth knowing about an event that was applied, ignored or parked."""

    FORCE_POST = "FORCE_POST"  # A clearing without an authorization.
    LATE_CLEARING = "LATE_CLEARING"  # A clearing after the card transaction was closed.
    OVER_REVERSAL = "OVER_REVERSAL"  # More was taken back than was left; only that was.
    OVER_REFUND = "OVER_REFUND"  # More has been given back than was taken.
    ADVICE_BELOW_SETTLED = "ADVICE_BELOW_SETTLED"  # Less is authorized than has cleared.
    NOTHING_TO_REVERSE = "NOTHING_TO_REVERSE"  # Ignored: nothing is left to take back.
    NOT_OPEN = "NOT_OPEN"  # Ignored: the card transaction is closed already.
    EXTENDED = "EXTENDED"  # Ignored: the authorization stands longer by now.
    WAITS = "WAITS"  # Parked: what it takes back has not arrived yet.


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
