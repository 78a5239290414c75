"""JSON of what pages show and the API has no resource of, and notes where its answer differs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from fastapi import Request

from cardledger.api.console.access.context import ConsoleContext
from cardledger.api.console.html import rendering
from cardledger.ledger.queries.console.entry_subjects import Subject
from cardledger.ledger.queries.console.platform_figures import Depth
from cardledger.ledger.queries.console.purchase_history import PurchaseHistory
from cardledger.schema.wire.common import public_id, rfc3339

Document = Mapping[str, Any]
"""A JSON object."""

_SOME_EVENTS: Final = (
    "The API returns every event; this JSON has those of this page, {} to {} of {}{}."
)


def events_call(
    request: Request, call: ConsoleContext, history: PurchaseHistory
) -> rendering.ApiCall:
    """Return the request of the API for the events of a card transaction, of which a page has some.

    The note says which, where the API returns more.
    """
    name = public_id("CardTransaction", history.resource.id)
    is_whole = len(history.steps) == history.event_count and not history.is_capped
    more = " and more" if history.is_capped else ""
    shown = (history.first, history.last, history.event_count, more)
    return rendering.api_call(
        request,
        call,
        f"/transactions/{name}/events",
        {"data": [step.event.wire() for step in history.steps]},
        note=None if is_whole else _SOME_EVENTS.format(*shown),
    )


def entry_subject(subject: Subject) -> Document:
    """Return what an entry belongs to, as members of the entry."""
    return {
        "merchant": subject.descriptor,
        "cardTransactionId": subject.card_transaction,
        "subject": {
            "kind": subject.kind,
            "id": subject.id,
            "source": subject.source,
            "reference": subject.reference,
        },
    }


def waiting(depths: Sequence[Depth]) -> list[Document]:
    """Return what waits; `isAtLeast`: more rows wait than are counted.

    `isOlder`: one of those that are not counted may wait for longer than `since`.
    """
    return [
        {
            "queue": depth.name,
            "count": depth.count,
            "isAtLeast": depth.is_capped,
            "since": moment(depth.since),
            "isOlder": depth.is_older,
        }
        for depth in depths
    ]


def moment(at: datetime | None) -> str | None:
    """Return a time as the API writes it."""
    return None if at is None else rfc3339(at)
