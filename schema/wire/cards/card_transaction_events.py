"""The events of one card transaction, explained one by one."""

from cardledger.schema.wire.common import CurrencyAmount, Response, Time


class Change(Response):
    """One figure of the card transaction, before and after an event; absent when there was none."""

    field: str
    before: int | str | None = None
    after: int | str | None = None


class EntryResource(Response):
    """One balanced movement: `debit` gives, `credit` gets."""

    debit: str
    credit: str
    amount: CurrencyAmount


class EventResource(Response):
    """One event: what happened, what it moved, what it changed, and why, in one sentence.

    `source` and `reference` name the message that caused it; they are absent when time did.
    """

    sequence: int
    type: str
    amount: CurrencyAmount
    explanation: str
    changes: list[Change]
    entries: list[EntryResource]
    source: str | None = None
    reference: str | None = None
    occurred_at: Time
    recorded_at: Time


class EventList(Response):
    """All events of a card transaction, in their order."""

    data: list[EventResource]
