"""Outcomes: the result of each network event."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic_core import from_json, to_json

from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import (
    CardId,
    Documented,
    PageQuery,
    ParkedEventId,
    RejectionId,
    Response,
    ShortName,
    Time,
)
from cardledger.schema.wire.network_events import EventType


class OutcomeType(StrEnum):
    """The result of an event; one per event, in order."""

    APPLIED = "APPLIED"
    DECLINED = "DECLINED"
    DUPLICATE = "DUPLICATE"
    IGNORED = "IGNORED"
    PARKED = "PARKED"
    REJECTED = "REJECTED"
    ACCEPTED = "ACCEPTED"  # Not decided yet; only while a caller waits no longer, never kept.


OUTCOME_MEANINGS: Final[Mapping[OutcomeType, str]] = {
    OutcomeType.APPLIED: "Recorded and in the books. Of an authorization: approved.",
    OutcomeType.DECLINED: "Recorded; the authorization is declined and no money moves.",
    OutcomeType.DUPLICATE: (
        "This event was decided before, and nothing happened now; `firstOutcome` is the result."
    ),
    OutcomeType.IGNORED: "Recorded as seen; there was nothing to change.",
    OutcomeType.PARKED: (
        "Kept until the event arrives that it reverses or changes; then it is applied by itself."
    ),
    OutcomeType.REJECTED: (
        "Not applied: something is wrong with the event. It is kept as a rejection, and its"
        " reference can be used again."
    ),
    OutcomeType.ACCEPTED: (
        "Accepted and not decided when the caller stopped waiting: not an approval. Ask for the"
        " outcome later."
    ),
}
"""What each outcome means."""


class RejectionReason(StrEnum):
    """Why an event was rejected; the event is stored with this reason."""

    MALFORMED = "MALFORMED"
    UNKNOWN_CARD = "UNKNOWN_CARD"
    UNKNOWN_ACCOUNT = "UNKNOWN_ACCOUNT"
    ACCOUNT_NOT_ACTIVE = "ACCOUNT_NOT_ACTIVE"
    UNKNOWN_TRANSFER = "UNKNOWN_TRANSFER"
    NOT_OWED = "NOT_OWED"
    INVALID_CURRENCY = "INVALID_CURRENCY"
    OUTDATED = "OUTDATED"
    KEY_REUSED = "KEY_REUSED"
    AMOUNT_OUT_OF_RANGE = "AMOUNT_OUT_OF_RANGE"
    TOO_MANY_PARKED = "TOO_MANY_PARKED"
    SOURCE_NOT_ALLOWED = "SOURCE_NOT_ALLOWED"
    INTERNAL_ERROR = "INTERNAL_ERROR"


@dataclass(frozen=True, slots=True)
class RejectionSpec:
    """What a rejection means, and what its sender can do about it."""

    meaning: str
    remedy: str


REJECTION_SPECS: Final[Mapping[RejectionReason, RejectionSpec]] = {
    RejectionReason.MALFORMED: RejectionSpec(
        "Not JSON, or not a network event; `detail` names up to 20 wrong fields.",
        "Correct the event and submit it again, with the same reference.",
    ),
    RejectionReason.UNKNOWN_CARD: RejectionSpec(
        "No such card, or not a card of the sender's platform.",
        "Correct `cardId`; or create the card, then retry, unless it is an authorization of a"
        " purchase.",
    ),
    RejectionReason.UNKNOWN_ACCOUNT: RejectionSpec(
        "Of a deposit: no such account, or not an account of the sender's platform.",
        "Not returned for network events.",
    ),
    RejectionReason.ACCOUNT_NOT_ACTIVE: RejectionSpec(
        "A deposit to an account that cannot pay.",
        "Not returned for network events.",
    ),
    RejectionReason.UNKNOWN_TRANSFER: RejectionSpec(
        "Of a transfer: no such transfer, or not `PROCESSING`.",
        "Not returned for network events.",
    ),
    RejectionReason.NOT_OWED: RejectionSpec(
        "Of a write-off: the card transaction owes less.",
        "Not returned for network events.",
    ),
    RejectionReason.INVALID_CURRENCY: RejectionSpec(
        "`currency` is not the currency of the card.",
        "Convert the amount, then submit the corrected event with the same reference.",
    ),
    RejectionReason.OUTDATED: RejectionSpec(
        "The card transaction is not at `expectedSequence`.",
        "Read the card transaction, decide again, and submit with its `sequence`; without it if the"
        " event has happened at the network.",
    ),
    RejectionReason.KEY_REUSED: RejectionSpec(
        "Another event of this cardholder has the same source and reference.",
        "Give the event a reference of its own. If it was meant as a repetition, send the first"
        " body unchanged.",
    ),
    RejectionReason.AMOUNT_OUT_OF_RANGE: RejectionSpec(
        "A total of the card transaction or the account would exceed 9,223,372,036,854,775,807"
        " minor units.",
        "Correct the amount.",
    ),
    RejectionReason.TOO_MANY_PARKED: RejectionSpec(
        "100 events wait for this card transaction: for the authorization, the clearing or the"
        " return that they take back or change.",
        "Submit what they wait for, then retry. Money that it has moved is in SUSPENSE meanwhile.",
    ),
    RejectionReason.SOURCE_NOT_ALLOWED: RejectionSpec(
        "The source is reserved for messages of the ledger.",
        "Use a source of your own.",
    ),
    RejectionReason.INTERNAL_ERROR: RejectionSpec(
        "Quarantined: the database cannot store what the event contains, such as a token that is"
        " too long for an index.",
        "Retry it after the repair, unless it is an authorization of a purchase, or submit a"
        " corrected event.",
    ),
}
"""What each reason of a rejection means."""

DECLINE_MEANINGS: Final[Mapping[str, str]] = {
    "CARD_PAUSED": "The card is frozen.",
    "CARD_NOT_ACTIVE": "The card is not active yet, or closed.",
    "NO_ELIGIBLE_FUNDING_SOURCE": "The funding account cannot be used.",
    "SPEND_LIMIT_EXCEEDED": "The amount is above the limit of the card for one authorization.",
    "INSUFFICIENT_FUNDS": "The available balance, less what the account owes, is too low.",
    "DECISION_TIMEOUT": "It could not be approved, or not be reported as approved, by `decideBy`.",
}
"""What each decline reason means, in the order in which they are checked."""


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


class ParkedEventResource(Response):
    """An event that waits for the event that it reverses or changes; it is gone once applied."""

    id: ParkedEventId
    type: Annotated[str, Documented(EventType)] | None = None
    source: str | None = None
    reference: str | None = None
    card_id: CardId
    issuer_transaction_token: str
    event: Mapping[str, Any] | None = None
    created_at: Time


class OutcomeFlag(StrEnum):
    """What is unusual about an event that was applied, ignored or parked."""

    FORCE_POST = "FORCE_POST"
    LATE_CLEARING = "LATE_CLEARING"
    OVER_REVERSAL = "OVER_REVERSAL"
    OVER_REFUND = "OVER_REFUND"
    ADVICE_BELOW_SETTLED = "ADVICE_BELOW_SETTLED"
    NOTHING_TO_REVERSE = "NOTHING_TO_REVERSE"
    NOT_OPEN = "NOT_OPEN"
    EXTENDED = "EXTENDED"
    DECISION_TIMEOUT = "DECISION_TIMEOUT"
    NOT_DUE = "NOT_DUE"
    WAITS = "WAITS"


FLAG_MEANINGS: Final[Mapping[OutcomeFlag, tuple[OutcomeType, str]]] = {
    OutcomeFlag.FORCE_POST: (OutcomeType.APPLIED, "A clearing without an authorization."),
    OutcomeFlag.LATE_CLEARING: (
        OutcomeType.APPLIED,
        "A clearing after the card transaction was closed.",
    ),
    OutcomeFlag.OVER_REVERSAL: (
        OutcomeType.APPLIED,
        "The reversal exceeds the uncleared amount; only that amount was released.",
    ),
    OutcomeFlag.OVER_REFUND: (OutcomeType.APPLIED, "Refunds exceed the settled amount."),
    OutcomeFlag.ADVICE_BELOW_SETTLED: (
        OutcomeType.APPLIED,
        "The advised total is below the settled amount.",
    ),
    OutcomeFlag.DECISION_TIMEOUT: (
        OutcomeType.APPLIED,
        "A reversal by the ledger of an approval that could not be reported by `decideBy`.",
    ),
    OutcomeFlag.NOTHING_TO_REVERSE: (OutcomeType.IGNORED, "No uncleared amount is left."),
    OutcomeFlag.NOT_OPEN: (
        OutcomeType.IGNORED,
        "The card transaction is closed, or was declined.",
    ),
    OutcomeFlag.EXTENDED: (
        OutcomeType.IGNORED,
        "An expiry by the ledger of an authorization that has been extended.",
    ),
    OutcomeFlag.NOT_DUE: (
        OutcomeType.IGNORED,
        "An expiry, or a step of a payment, before its time; it comes again.",
    ),
    OutcomeFlag.WAITS: (
        OutcomeType.PARKED,
        "The event that this one reverses or changes has not arrived.",
    ),
}
"""The outcome that each flag comes with, and what it means."""

NOT_APPLIED: Final[Mapping[OutcomeFlag, str]] = {
    OutcomeFlag.NOTHING_TO_REVERSE: "No matching authorization to reverse.",
    OutcomeFlag.NOT_OPEN: "The card transaction is closed.",
    OutcomeFlag.EXTENDED: "The authorization was extended and has not expired.",
    OutcomeFlag.NOT_DUE: "What the ledger was to do is not due yet; it comes again.",
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
