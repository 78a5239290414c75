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
from cardledger.ledger.queries.console.purchase_messages import PurchaseMessages
from cardledger.schema.wire.common import public_id, rfc3339
from cardledger.schema.wire.webhooks.endpoints import (
    WebhookAttemptResource,
    WebhookDeliveryResource,
)

Document = Mapping[str, Any]
"""What `shown_json` writes as a JSON object: its values may be resources, and lists of them."""

MORE: Final = "The API returns the resource; the lists beside it are of this page."
"""The note of a page that shows a resource, and what belongs to it."""

_OF_EVENTS: Final = "The API returns `data`, the events; the rest is of this page."
_SOME_EVENTS: Final = (
    "The API returns every event; this JSON has those of this page, {} to {} of {}{}."
)


def events_call(
    request: Request,
    call: ConsoleContext,
    history: PurchaseHistory,
    others: Document | None = None,
) -> rendering.ApiCall:
    """Return the request of the API for the events of a card transaction, of which a page has some.

    `others` is what else the page shows. The note says which events the document has, where the API
    returns more.
    """
    name = public_id("CardTransaction", history.resource.id)
    is_whole = len(history.steps) == history.event_count and not history.is_capped
    more = " and more" if history.is_capped else ""
    shown = (history.first, history.last, history.event_count, more)
    return rendering.api_call(
        request,
        call,
        f"/transactions/{name}/events",
        {
            "data": [step.event for step in history.steps],
            "asOf": history.as_of,
            "figures": dict(history.figures),
            "balances": dict(history.balances),
            "reason": history.reason,
            "cardTransaction": history.resource,
            **(others or {}),
        },
        note=_OF_EVENTS if is_whole else f"{_OF_EVENTS} {_SOME_EVENTS.format(*shown)}",
    )


def delivery(
    resource: WebhookDeliveryResource, attempts: Sequence[WebhookAttemptResource]
) -> Document:
    """Return a delivery with its latest attempts."""
    return {**resource.wire(), "attempts": [each.wire() for each in attempts]}


def messages(found: PurchaseMessages) -> Document:
    """Return the messages of the network about a purchase, those that wait, and the rejections."""
    return {
        "messages": [
            {
                "source": each.source,
                "reference": each.reference,
                "outcome": each.outcome,
                "reason": each.reason,
                "firstEvent": each.first_event,
                "lastEvent": each.last_event,
                "occurredAt": moment(each.occurred_at),
                "recordedAt": moment(each.recorded_at),
            }
            for each in found.applied
        ],
        "parkedEvents": [
            {
                "id": public_id("ParkedEvent", each.id),
                "source": each.source,
                "reference": each.reference,
                "type": each.type,
                "waitsFor": each.waits_for,
                "receivedAt": moment(each.received_at),
            }
            for each in found.parked
        ],
        "rejections": [
            {
                "id": public_id("Rejection", each.id),
                "source": each.source,
                "reference": each.reference,
                "reason": each.reason,
                "detail": each.detail,
                "hasToken": each.has_token,
                "hasReference": each.has_reference,
                "recordedAt": moment(each.recorded_at),
            }
            for each in found.rejected
        ],
        "hasMoreParkedEvents": found.has_more_parked,
        "hasMoreRejections": found.has_more_rejected or found.is_capped,
    }


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
