"""What the network tells, and the API tier enqueues: one JSON object an event."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from schema.wire.common import (
    Amount,
    CardId,
    Currency,
    Merchant,
    Name,
    Request,
    ShortName,
    Time,
)


class EventType(StrEnum):
    """Types of network events that the ledger understands."""

    AUTHORIZATION = "AUTHORIZATION"
    CLEARING = "CLEARING"


class _NetworkEvent(Request):
    """What every event says. `source` and `reference` are its idempotency key, for ever."""

    source: ShortName
    reference: Name
    issuer_transaction_token: Name
    card_id: CardId
    currency: Currency
    occurred_at: Time | None = None


class Authorization(_NetworkEvent):
    """May `amount` be spent? The only event that can be declined."""

    type: Literal[EventType.AUTHORIZATION]
    amount: Amount
    merchant: Merchant | None = None
    decide_by: Time | None = None


class Clearing(_NetworkEvent):
    """The network has moved `amount`; `final` says whether more clearings follow."""

    type: Literal[EventType.CLEARING]
    amount: Amount
    merchant: Merchant | None = None
    final: Annotated[bool, Field(strict=True)] | None = None


NetworkEvent = Annotated[Authorization | Clearing, Field(discriminator="type")]

NETWORK_EVENT: TypeAdapter[Authorization | Clearing] = TypeAdapter(NetworkEvent)
"""Parses one event; see `schema.wire.errors` for what becomes of its complaints."""


def body_of(event: Authorization | Clearing) -> dict[str, Any]:
    """Return `event` as the inbox keeps it: what was said, nothing that was not."""
    return event.model_dump(mode="json", by_alias=True, exclude_none=True)


def parse_time(value: str | None) -> datetime | None:
    """Return the time that `body_of` wrote."""
    return None if value is None else datetime.fromisoformat(value)
