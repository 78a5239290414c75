"""What callers submit: events to decide, and input to keep as a rejection with its reason."""

import asyncio
from asyncio import Future
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from json import dumps
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pydantic import BaseModel, ValidationError

from cardledger.ledger.engine.parsing import card_id_of
from cardledger.ledger.engine.records import RejectionRecord
from cardledger.ledger.messaging import truncated_events
from cardledger.ledger.messaging.inbox import UNROUTED, Lane, Message
from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id
from cardledger.schema.wire import outcomes
from cardledger.schema.wire.network_events import (
    NETWORK_EVENT,
    NetworkEvent,
    body_of,
    explain_event,
)
from cardledger.schema.wire.outcomes import Outcome, OutcomeType, RejectionReason

if TYPE_CHECKING:
    from cardledger.workers.tracing.spans import InboxSpan

_IDENTIFIER_LENGTH: Final = 255  # Characters of `source` and `reference` that a rejection keeps.


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Input in the place of an event that is not a JSON object; `detail` says why."""

    text: str
    detail: str


@dataclass(frozen=True, slots=True)
class Numbered:
    """An event of a file; what is wrong with its fields is reported with its line, from 1."""

    line: int
    event: Mapping[str, Any]


Event = NetworkEvent | Mapping[str, Any] | Numbered | Unreadable


@dataclass(slots=True, eq=False)
class Submission:
    """An event on its way to the inbox, and the future of its outcome."""

    body: Mapping[str, Any]
    platform_id: Id | None  # None: the operator, who may use every card.
    lane: Lane
    outcome: "Future[Outcome]"
    report_by: float | None = None  # Of an approval, on the clock of `elapsed_s`.
    message: Message | None = None  # Once it is being written.
    is_withdrawn: bool = False  # It must not be written any more.
    span: "InboxSpan | None" = None  # Of the write, which the events of one call share.

    @property
    def card_id(self) -> Id | None:
        """The card that the event names; None for a deposit, or when the id is malformed."""
        public: str | None = self.body.get("cardId")
        return None if public is None else card_id_of(public)


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """Input that is not a valid event, as it is kept: a large one in part."""

    body: str
    reference: str | None = None
    source: str | None = None
    detail: str

    def rejection(self, key: Id, at: datetime, platform_id: Id | None = None) -> RejectionRecord:
        """Return the row `key` that keeps this input with its reason."""
        return RejectionRecord(
            id=key,
            customer_id=UNROUTED.customer_id,
            platform_id=platform_id or UNROUTED.platform_id,
            source=self.source,
            reference=self.reference,
            body=self.body,
            reason=RejectionReason.MALFORMED,
            detail=self.detail,
            recorded_at=at,
        )


@dataclass(frozen=True, slots=True)
class MalformedSubmission:
    """Input that is not a valid event, on its way to the rejections."""

    malformed: Malformed
    platform_id: Id | None
    outcome: "Future[Outcome]"
    report_by: ClassVar[None] = None  # It has no deadline.

    @property
    def reference(self) -> str | None:
        """The reference that it has, if that can be read."""
        return self.malformed.reference

    def rejection(self, at: datetime) -> RejectionRecord:
        """Return the row that keeps this input with its reason."""
        return self.malformed.rejection(new_id(), at, self.platform_id)

    def rejection_outcome(self) -> Outcome:
        """Return the outcome for the caller."""
        return outcomes.outcome(
            self.reference,
            OutcomeType.REJECTED,
            reason=RejectionReason.MALFORMED,
            detail=self.malformed.detail,
        )


def parse(event: Event, platform_id: Id | None, lane: Lane) -> Submission | MalformedSubmission:
    """Return `event` as it is submitted; never raises for malformed input."""
    outcome: Future[Outcome] = asyncio.get_running_loop().create_future()
    found = read(event)
    if isinstance(found, Malformed):
        return MalformedSubmission(found, platform_id, outcome)
    return Submission(found, platform_id, lane, outcome)


def read(event: Event) -> Mapping[str, Any] | Malformed:
    """Return the body of the message that `event` becomes, or why it is none."""
    if isinstance(event, Unreadable):
        return Malformed(body=_storable(event.text), detail=event.detail)
    sent = event.event if isinstance(event, Numbered) else event
    try:
        parsed = sent if isinstance(sent, BaseModel) else NETWORK_EVENT.validate_python(sent)
    except ValidationError as error:
        detail = explain_event(sent, error)
        if isinstance(event, Numbered):
            detail = f"line {event.line}: {detail}"
        return _malformed(sent, detail)
    return body_of(parsed)


def _malformed(event: object, detail: str) -> Malformed:
    fields = event if isinstance(event, Mapping) else {}
    return Malformed(
        body=truncated_events.kept(_as_json(event), fields),
        reference=identifier(fields.get("reference")),
        source=identifier(fields.get("source")),
        detail=detail,
    )


def _as_json(event: object) -> str:
    """Return `event` as JSON, or a description of it when JSON cannot represent it."""
    try:
        return dumps(event, default=repr)
    except (ValueError, TypeError, RecursionError) as error:
        return dumps(f"a {type(event).__name__} that cannot be written as JSON: {error}")


def _storable(text: str) -> str:
    """Return `text` with the characters that PostgreSQL cannot store replaced."""
    return text.replace("\x00", "\ufffd").encode(errors="replace").decode()


def identifier(value: object) -> str | None:
    """Return `value`, cut to length, if a text column can store it."""
    if not isinstance(value, str) or "\x00" in value:
        return None
    with suppress(UnicodeEncodeError):
        value.encode()
        return value[:_IDENTIFIER_LENGTH]
    return None
