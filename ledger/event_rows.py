"""Events as rows of `card_transaction_events`, and back."""

from typing import Final, NamedTuple, assert_never

from ledger.core import events


class EventRow(NamedTuple):
    """The part of a row that says what happened."""

    kind: str
    amount: int
    unfunded: int | None
    final: bool | None
    reason: str | None


KINDS: Final = {
    events.Authorized: "AUTHORIZED",
    events.Declined: "DECLINED",
    events.Pulled: "PULLED",
    events.PullOpened: "PULL_OPENED",
    events.PullResized: "PULL_RESIZED",
    events.PullRecovered: "PULL_RECOVERED",
    events.Released: "RELEASED",
    events.Cleared: "CLEARED",
}


def to_row(event: events.Event) -> EventRow:
    """Return what `event` leaves in the record."""
    kind, amount = KINDS[type(event)], event.amount
    match event:
        case events.Cleared():
            return EventRow(kind, amount, event.unfunded, event.final, None)
        case events.PullRecovered():
            return EventRow(kind, amount, event.unfunded, None, None)
        case events.Declined():
            return EventRow(kind, amount, None, None, event.reason)
        case (
            events.Authorized()
            | events.Pulled()
            | events.PullOpened()
            | events.PullResized()
            | events.Released()
        ):
            return EventRow(kind, amount, None, None, None)
        case _:
            assert_never(event)


def from_row(row: EventRow) -> events.Event:
    """Return the event that `to_row` wrote.

    Raises: ValueError for a row that no event leaves.
    """
    kind, amount, unfunded, final, reason = row
    match kind:
        case "AUTHORIZED":
            return events.Authorized(amount=amount)
        case "DECLINED" if reason is not None:
            return events.Declined(amount=amount, reason=events.DeclineReason(reason))
        case "PULLED":
            return events.Pulled(amount=amount)
        case "PULL_OPENED":
            return events.PullOpened(amount=amount)
        case "PULL_RESIZED":
            return events.PullResized(amount=amount)
        case "PULL_RECOVERED" if unfunded is not None:
            return events.PullRecovered(amount=amount, unfunded=unfunded)
        case "RELEASED":
            return events.Released(amount=amount)
        case "CLEARED" if unfunded is not None and final is not None:
            return events.Cleared(amount=amount, unfunded=unfunded, final=final)
    raise ValueError(f"no event leaves the row {row}")
