"""What the network tells, and the API tier enqueues: one JSON object an event."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter

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


class _NetworkEvent(Request):
    """What every event says. `source` and `reference` are its idempotency key, for ever."""

    source: ShortName
    reference: Name
    issuer_transaction_token: Name
    card_id: CardId
    currency: Currency
    merchant: Merchant | None = None
    occurred_at: Time | None = None
    # Only for senders that can take no for an answer, such as simulators: apply it if its card
    # transaction is at this `sequence` still. What has happened at the network must not say it.
    expected_sequence: Annotated[int, Field(strict=True, ge=0)] | None = None


class Authorization(_NetworkEvent):
    """May `amount` (more) be spent? Only these can be declined."""

    type: Literal[
        EventType.AUTHORIZATION,
        EventType.AUTHORIZATION_INCREMENT,
        EventType.FINANCIAL_AUTHORIZATION,
    ]
    amount: Amount
    decide_by: Time | None = None


class Movement(_NetworkEvent):
    """Something that has happened at the network, of `amount`."""

    type: Literal[
        EventType.STAND_IN_AUTHORIZATION,
        EventType.CLEARING_REVERSAL,
        EventType.FINANCIAL_CREDIT_AUTHORIZATION,
        EventType.RETURN,
        EventType.RETURN_REVERSAL,
    ]
    amount: Amount


class Clearing(_NetworkEvent):
    """The network has moved `amount`; `final` says whether more clearings follow."""

    type: Literal[EventType.CLEARING]
    amount: Amount
    final: Annotated[bool, Field(strict=True)] | None = None


class Advice(_NetworkEvent):
    """The authorized total is `amount` now."""

    type: Literal[EventType.AUTHORIZATION_ADVICE]
    amount: NonNegativeAmount


class Reversal(_NetworkEvent):
    """`amount` of the authorization is taken back; without an amount: all that has not cleared."""

    type: Literal[EventType.AUTHORIZATION_REVERSAL]
    amount: Amount | None = None


class Expiry(_NetworkEvent):
    """The authorization has come to its end."""

    type: Literal[EventType.AUTHORIZATION_EXPIRY]


NetworkEvent: TypeAlias = Annotated[
    Authorization | Movement | Clearing | Advice | Reversal | Expiry, Field(discriminator="type")
]

NETWORK_EVENT: TypeAdapter[NetworkEvent] = TypeAdapter(NetworkEvent)
"""Parses one event; see `cardledger.schema.wire.errors` for what becomes of its complaints."""


def body_of(event: NetworkEvent) -> dict[str, Any]:
    """Return `event` as the inbox keeps it: what was said, nothing that was not."""
    return event.model_dump(mode="json", by_alias=True, exclude_none=True)


def parse_time(value: str | None) -> datetime | None:
    """Return the time that `body_of` wrote.

    Raises: TypeError or ValueError when it is none, or has no offset from UTC.
    """
    if value is None:
        return None
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("a time without its offset from UTC")
    return moment
