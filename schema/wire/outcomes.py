"""What became of a network event."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic_core import from_json, to_json

from cardledger.schema.wire.cards.card_transactions import CardTransactionResource


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


class OutcomeFlag(StrEnum):
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one network event: what became of it, and the JSON that its sender gets.

    Most of them are only handed on, so what is inside is read when somebody asks for it.
    """

    outcome: OutcomeType
    json: bytes

    @property
    def wire(self) -> Mapping[str, Any]:
        """What its sender reads, parsed anew every time."""
        found: Mapping[str, Any] = from_json(self.json)
        return found

    @property
    def reference(self) -> str | None:
        """What the sender calls the event, as far as it could be read."""
        return self.wire.get("reference")

    @property
    def reason(self) -> str | None:
        """Why, where there is a reason."""
        return self.wire.get("reason")

    @property
    def detail(self) -> str | None:
        """What to change, in words."""
        return self.wire.get("detail")

    @property
    def first_outcome(self) -> OutcomeType | None:
        """With `DUPLICATE`: what the same event led to the first time."""
        first = self.wire.get("firstOutcome")
        return None if first is None else OutcomeType(first)

    @property
    def card_transaction(self) -> CardTransactionResource | None:
        """Its card transaction after it, parsed anew every time."""
        sent = self.wire.get("cardTransaction")
        return None if sent is None else CardTransactionResource.model_validate(sent)


def outcome(  # noqa: PLR0913 - the fields, by name
    reference: str | None,
    outcome: OutcomeType,
    *,
    reason: str | None = None,
    detail: str | None = None,
    first_outcome: OutcomeType | None = None,
    card_transaction: Mapping[str, Any] | None = None,
) -> Outcome:
    """Return an outcome; what has nothing to say is left out, as in every answer."""
    said: dict[str, Any] = {
        "reference": reference,
        "outcome": outcome,
        "reason": reason,
        "detail": detail,
        "firstOutcome": first_outcome,
        "cardTransaction": card_transaction,
    }
    said = {name: value for name, value in said.items() if value is not None}
    return Outcome(outcome, to_json(said))
