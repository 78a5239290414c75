"""Conversion between events and rows of `card_transaction_events`."""

from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from cardledger.ledger.core import events


class EventRow(NamedTuple):
    """The columns that hold an event; None where its kind does not have the field."""

    kind: str
    amount: int
    unfunded: int | None
    final: bool | None
    reason: str | None


class StoredEvent(NamedTuple):
    """An event as it is stored (`EventRow`), with the message that caused it and its times."""

    kind: str
    amount: int
    unfunded: int | None
    final: bool | None
    reason: str | None
    source: str | None
    reference: str | None
    occurred_at: datetime
    recorded_at: datetime
    merchant_amount: int | None = None  # This and the next three: of a conversion of its amount.
    merchant_currency: str | None = None
    billing_amount: int | None = None
    rate: Decimal | None = None
    outcome: str | None = None  # This and the last: of the message; None where they are not read.
    outcome_reason: str | None = None


KINDS: Final[dict[type[events.Event], str]] = {
    events.Authorized: "AUTHORIZED",
    events.Declined: "DECLINED",
    events.AuthorizationAdjusted: "AUTHORIZATION_ADJUSTED",
    events.AuthorizationReversed: "AUTHORIZATION_REVERSED",
    events.AuthorizationExpired: "AUTHORIZATION_EXPIRED",
    events.AuthorizationCancelled: "AUTHORIZATION_CANCELLED",
    events.Pulled: "PULLED",
    events.PullPending: "PULL_PENDING",
    events.PullConfirmed: "PULL_CONFIRMED",
    events.PullFailed: "PULL_FAILED",
    events.PullOpened: "PULL_OPENED",
    events.PullResized: "PULL_RESIZED",
    events.PullRecovered: "PULL_RECOVERED",
    events.Released: "RELEASED",
    events.Cleared: "CLEARED",
    events.ClearingReversed: "CLEARING_REVERSED",
    events.Refunded: "REFUNDED",
    events.CreditAuthorized: "CREDIT_AUTHORIZED",
    events.CreditDeclined: "CREDIT_DECLINED",
    events.CreditAdjusted: "CREDIT_ADJUSTED",
    events.Credited: "CREDITED",
    events.RefundReversed: "REFUND_REVERSED",
    events.DebitRecovered: "DEBIT_RECOVERED",
    events.WrittenOff: "WRITTEN_OFF",
    events.WriteOffReversed: "WRITE_OFF_REVERSED",
    events.WriteOffRecovered: "WRITE_OFF_RECOVERED",
}
"""The stored name of each event: it must never change, whatever the class is called."""

_EARLIER_FINAL: Final[dict[type[events.Event], bool]] = {
    events.Credited: True,  # Of releases before schema 0071.
    # Of releases in which these closed nothing.
    events.ClearingReversed: False,
    events.RefundReversed: False,
}
"""What `final` is of an event without it, as earlier releases wrote it."""

_EVENTS: Final = {kind: event for event, kind in KINDS.items()}
_FIELDS: Final = {event: [field.name for field in fields(event)] for event in KINDS}
_SHAPES: Final = {
    event: (kind, "unfunded" in names, "final" in names, "reason" in names)
    for (event, kind), names in zip(KINDS.items(), _FIELDS.values(), strict=True)
}


def to_row(event: events.Event) -> tuple[str, int, int | None, bool | None, str | None]:
    """Return the columns of `event`: the fields of an `EventRow`."""
    kind, has_unfunded, has_final, has_reason = _SHAPES[type(event)]
    fact: Any = event
    return (
        kind,
        fact.amount,
        fact.unfunded if has_unfunded else None,
        fact.final if has_final else None,
        fact.reason if has_reason else None,
    )


def from_row(row: EventRow) -> events.Event:
    """Return the event that `to_row` wrote.

    Raises: ValueError for a row that `to_row` cannot have written.
    """
    event = _EVENTS.get(row.kind)
    if event is None:
        raise ValueError(f"unknown kind of event: {row.kind}")
    values = {name: getattr(row, name) for name in _FIELDS[event]}
    if row.final is None and event in _EARLIER_FINAL:
        values["final"] = _EARLIER_FINAL[event]
    if None in values.values():
        raise ValueError(f"incomplete row of an event: {row}")
    if "reason" in values:
        values["reason"] = events.DeclineReason(values["reason"])
    return event(**values)
