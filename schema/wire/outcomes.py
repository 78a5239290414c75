"""Outcomes: the result of each network event."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic_core import from_json, to_json

from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import (
    Documented,
    PageQuery,
    RejectionId,
    Response,
    ShortName,
    Time,
)


class OutcomeType(StrEnum):
    """The result of an event; one per event, in order."""

    APPLIED = "APPLIED"
    DECLINED = "DECLINED"
    DUPLICATE = "DUPLICATE"
    IGNORED = "IGNORED"
    PARKED = "PARKED"
    REJECTED = "REJECTED"
    ACCEPTED = "ACCEPTED"  # Not decided yet; only while a caller waits no longer, never kept.


class RejectionReason(StrEnum):
    """Why an event was rejected; the event is stored with this reason."""

    MALFORMED = "MALFORMED"  # Not JSON, or not a network event.
    UNKNOWN_CARD = "UNKNOWN_CARD"  # No such card, or not a card of the sender.
    UNKNOWN_ACCOUNT = "UNKNOWN_ACCOUNT"  # No such account, or not an account of the sender.
    ACCOUNT_NOT_ACTIVE = "ACCOUNT_NOT_ACTIVE"  # A deposit to an account that cannot pay.
    UNKNOWN_TRANSFER = "UNKNOWN_TRANSFER"  # No such transfer, or not PROCESSING.
    INVALID_CURRENCY = "INVALID_CURRENCY"  # Not the currency of the card.
    OUTDATED = "OUTDATED"  # The card transaction is past `expectedSequence`.
    KEY_REUSED = "KEY_REUSED"  # Same source and reference, another body.
    AMOUNT_OUT_OF_RANGE = "AMOUNT_OUT_OF_RANGE"  # A total would not fit 63 bits.
    SOURCE_NOT_ALLOWED = "SOURCE_NOT_ALLOWED"  # The source may not send events of this type.
    INTERNAL_ERROR = "INTERNAL_ERROR"  # A defect; quarantined, resubmit after the fix.


class RejectionsQuery(PageQuery):
    """Filters of the list of rejections; both must match, times are inclusive."""

    reason: ShortName | None = None
    since: Time | None = None


class RejectionResource(Response):
    """An event that was rejected; `retriedAt` is present once it was enqueued again."""

    id: RejectionId
    source: str | None = None
    reference: str | None = None
    reason: Annotated[str, Documented(RejectionReason)]
    detail: str | None = None
    event: str | None = None
    retried_at: Time | None = None
    created_at: Time


class OutcomeFlag(StrEnum):
    """What is unusual about an event that was applied, ignored or parked."""

    FORCE_POST = "FORCE_POST"  # Applied: a clearing without an authorization.
    LATE_CLEARING = "LATE_CLEARING"  # Applied: a clearing after the card transaction was closed.
    OVER_REVERSAL = "OVER_REVERSAL"  # Applied to what was left to reverse, which was less.
    OVER_REFUND = "OVER_REFUND"  # Applied: more was refunded than had settled.
    ADVICE_BELOW_SETTLED = "ADVICE_BELOW_SETTLED"  # Applied: less is authorized than has cleared.
    NOTHING_TO_REVERSE = "NOTHING_TO_REVERSE"  # Ignored: no uncleared amount is left.
    NOT_OPEN = "NOT_OPEN"  # Ignored: the card transaction is closed.
    EXTENDED = "EXTENDED"  # Ignored: the authorization expires later by now.
    DECISION_TIMEOUT = "DECISION_TIMEOUT"  # Applied: reverses an approval not reported in time.
    NOT_DUE = "NOT_DUE"  # Ignored: the authorization has not expired; its expiry comes again.
    WAITS = "WAITS"  # Parked until the event that it reverses or changes arrives.


NOT_APPLIED: Final[Mapping[OutcomeFlag, str]] = {
    OutcomeFlag.NOTHING_TO_REVERSE: "No matching authorization to reverse.",
    OutcomeFlag.NOT_OPEN: "The card transaction is closed.",
    OutcomeFlag.EXTENDED: "The authorization was extended and has not expired.",
    OutcomeFlag.NOT_DUE: "The authorization has not expired yet.",
    OutcomeFlag.WAITS: "No matching event yet; this event is applied when it arrives.",
}
"""A message for each reason of an event that was ignored or parked."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one network event and the JSON that its sender receives.

    Most outcomes are only passed on, so the JSON is parsed when a property is read.
    """

    outcome: OutcomeType
    json: bytes

    @property
    def wire(self) -> Mapping[str, Any]:
        """The JSON object, parsed anew every time."""
        parsed: Mapping[str, Any] = from_json(self.json)
        return parsed

    @property
    def reference(self) -> str | None:
        """The sender's reference of the event; None if it could not be read."""
        return self.wire.get("reference")

    @property
    def reason(self) -> str | None:
        """The rejection reason, decline reason or flag, if any."""
        return self.wire.get("reason")

    @property
    def detail(self) -> str | None:
        """An explanation for people, if any."""
        return self.wire.get("detail")

    @property
    def first_outcome(self) -> OutcomeType | None:
        """With `DUPLICATE`: the outcome of the first submission."""
        first = self.wire.get("firstOutcome")
        return None if first is None else OutcomeType(first)

    @property
    def is_approval(self) -> bool:
        """Whether it says that an authorization is approved, now or by an earlier submission."""
        if self.outcome is OutcomeType.DUPLICATE:
            return self.first_outcome is OutcomeType.APPLIED
        return self.outcome is OutcomeType.APPLIED

    @property
    def card_transaction(self) -> CardTransactionResource | None:
        """The card transaction after the event, parsed anew every time."""
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
    """Return an outcome; fields that are None are left out, as in every response."""
    fields: dict[str, Any] = {
        "reference": reference,
        "outcome": outcome,
        "reason": reason,
        "detail": detail,
        "firstOutcome": first_outcome,
        "cardTransaction": card_transaction,
    }
    present = {name: value for name, value in fields.items() if value is not None}
    return Outcome(outcome, to_json(present))
