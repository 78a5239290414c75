"""Network events as the API tier enqueues them: one JSON object per event."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from cardledger.schema.wire.common import (
    Amount,
    CardId,
    Currency,
    Merchant,
    Name,
    NonNegativeAmount,
    Request,
    ShortName,
    Time,
)
from cardledger.schema.wire.errors import explain_all


class EventType(StrEnum):
    """Types of network events that the ledger understands."""

    AUTHORIZATION = "AUTHORIZATION"
    AUTHORIZATION_INCREMENT = "AUTHORIZATION_INCREMENT"
    AUTHORIZATION_ADVICE = "AUTHORIZATION_ADVICE"
    AUTHORIZATION_REVERSAL = "AUTHORIZATION_REVERSAL"
    AUTHORIZATION_EXPIRY = "AUTHORIZATION_EXPIRY"
    STAND_IN_AUTHORIZATION = "STAND_IN_AUTHORIZATION"
    FINANCIAL_AUTHORIZATION = "FINANCIAL_AUTHORIZATION"
    CLEARING = "CLEARING"
    CLEARING_REVERSAL = "CLEARING_REVERSAL"
    FINANCIAL_CREDIT_AUTHORIZATION = "FINANCIAL_CREDIT_AUTHORIZATION"
    RETURN = "RETURN"
    RETURN_REVERSAL = "RETURN_REVERSAL"


AUTHORIZATIONS: Final = frozenset(
    {
        EventType.AUTHORIZATION,
        EventType.AUTHORIZATION_INCREMENT,
        EventType.FINANCIAL_AUTHORIZATION,
    }
)
"""The types of live authorizations: only these can be declined."""


RESERVED_SOURCES: Final = frozenset(
    {"canary", "cards", "decision-timeout", "engine", "schedule", "transfers"}
)
"""The sources of messages that the ledger sends to itself. A sender that used one of them could
take the idempotency key of such a message, which would then be rejected."""


def _not_reserved(source: str) -> str:
    if source in RESERVED_SOURCES:
        raise ValueError("must not be one that is reserved for messages of the ledger")
    return source


Source: TypeAlias = Annotated[ShortName, AfterValidator(_not_reserved)]


class _NetworkEvent(Request):
    """The fields of every event; `source` and `reference` are its permanent idempotency key."""

    source: Source
    reference: Name
    issuer_transaction_token: Name
    card_id: CardId
    currency: Currency
    merchant: Merchant | None = None
    occurred_at: Time | None = None
    # Optimistic locking, for senders that accept a rejection, such as simulators: apply the event
    # only if its card transaction is still at this `sequence`. Real network events must not use it.
    expected_sequence: Annotated[int, Field(strict=True, ge=0)] | None = None


class Authorization(_NetworkEvent):
    """A request to authorize `amount` (more); only these events can be declined."""

    type: Literal[
        EventType.AUTHORIZATION,
        EventType.AUTHORIZATION_INCREMENT,
        EventType.FINANCIAL_AUTHORIZATION,
    ]
    amount: Amount
    decide_by: Time | None = None


class Movement(_NetworkEvent):
    """A movement of `amount` that has already happened at the network."""

    type: Literal[
        EventType.STAND_IN_AUTHORIZATION,
        EventType.CLEARING_REVERSAL,
        EventType.FINANCIAL_CREDIT_AUTHORIZATION,
        EventType.RETURN,
        EventType.RETURN_REVERSAL,
    ]
    amount: Amount


class Clearing(_NetworkEvent):
    """A clearing of `amount`; `final`: no further clearing follows."""

    type: Literal[EventType.CLEARING]
    amount: Amount
    final: Annotated[bool, Field(strict=True)] | None = None


class Advice(_NetworkEvent):
    """A change of the authorized total to `amount`."""

    type: Literal[EventType.AUTHORIZATION_ADVICE]
    amount: NonNegativeAmount


class Reversal(_NetworkEvent):
    """A reversal of `amount`; without `amount`, of all that has not cleared."""

    type: Literal[EventType.AUTHORIZATION_REVERSAL]
    amount: Amount | None = None


class Expiry(_NetworkEvent):
    """The authorization has expired."""

    type: Literal[EventType.AUTHORIZATION_EXPIRY]


NetworkEvent: TypeAlias = Annotated[
    Authorization | Movement | Clearing | Advice | Reversal | Expiry, Field(discriminator="type")
]

NETWORK_EVENT: TypeAdapter[NetworkEvent] = TypeAdapter(NetworkEvent)
"""Parses one event; `explain_event` explains its validation errors."""


def body_of(event: NetworkEvent) -> dict[str, Any]:
    """Return `event` as the inbox stores it: the fields that were sent."""
    return event.model_dump(mode="json", by_alias=True, exclude_none=True)


_NO_TYPE: Final = frozenset({"union_tag_not_found", "union_tag_invalid"})


def explain_event(event: object, error: ValidationError) -> str:
    """Return in one line all that is wrong with `event`, by the names of the wire.

    Without a valid type, the fields that every type has are checked all the same.
    """
    found = error.errors(include_url=False, include_input=False)
    if found[0]["type"] in _NO_TYPE:
        try:
            _NetworkEvent.model_validate(event)
        except ValidationError as of_fields:
            more = of_fields.errors(include_url=False, include_input=False)
            # A field that some type has is not known here.
            found += [each for each in more if each["type"] != "extra_forbidden"]
    return explain_all(found)


def parse_time(value: str | None) -> datetime | None:
    """Return the time that `body_of` wrote.

    Raises: TypeError or ValueError when `value` is not a time with a UTC offset.
    """
    if value is None:
        return None
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("a time without a UTC offset")
    return moment
