"""Pages of the events of a card transaction, each event with its explanation.

The cursor of a page holds the state that its first event is added to: a page takes as long wherever
it is, while a fold of all that is before it would take longer for every page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core.card_transaction import UNKNOWN, CardTransaction, fold
from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.core.status import Closure
from cardledger.ledger.projections.event_rows import EventRow, StoredEvent, from_row
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.explained_events import explained
from cardledger.ledger.storage import paging
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transaction_events import EventResource

_NUMBERS: Final = (
    "sequence",
    "authorizations",
    "authorized",
    "settled",
    "settlement_count",
    "refunded",
    "refund_count",
    "pulled",
    "pull_count",
    "pending",
    "pending_count",
    "open_pull",
    "unpaid",
    "released",
    "release_count",
    "declined",
    "written_off",
    "debits_written_off",
)
_PAGE: Final = 1_000  # Events, where all of them are read.

_PLACE: Final = Struct(f">{len(_NUMBERS)}q?q40s40s")

PLACE_BYTES: Final = _PLACE.size
"""The size of the place of a page in its cursor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnexplainedPage:
    """What `explain` needs, as it was read; `count` is the number of all events."""

    currency: str
    count: int
    before: CardTransaction
    stored: Sequence[StoredEvent]


async def read(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    card_transaction_id: Id,
    after: bytes | None,
    limit: int,
) -> UnexplainedPage | None:
    """Read a page of events of the platform's card transaction; None: it has none such.

    The page begins at the place `after`, else with the first event.
    """
    columns = tables.card_transactions.c
    result = await connection.execute(
        select(columns.currency, columns.sequence).where(
            columns.id == card_transaction_id, columns.platform_id == platform_id
        )
    )
    found = result.one_or_none()
    if found is None:
        return None
    before = UNKNOWN if after is None else unpacked(after)
    first = before.sequence
    stored = await card_transactions.events_between(
        connection, card_transaction_id=card_transaction_id, after=first, until=first + limit
    )
    currency, count = found
    # Events that were recorded between the two statements count as well.
    count = max(count, first + len(stored))
    return UnexplainedPage(currency=currency, count=count, before=before, stored=stored)


def explain(page: UnexplainedPage) -> paging.Page[EventResource]:
    """Return the page that was read; takes a processor, and may run in a thread."""
    last = fold([from_row(EventRow(*row[:5])) for row in page.stored], page.before)
    has_more = bool(page.stored) and last.sequence < page.count
    return paging.Page(
        items=explained(page.stored, page.currency, page.before),
        last=Id(packed(last)) if has_more else None,
        total_count=page.count if page.count <= paging.COUNT_LIMIT else None,
    )


async def every(
    connection: AsyncConnection, *, platform_id: Id, card_transaction_id: Id
) -> list[EventResource] | None:
    """Return all events, explained, of the platform's card transaction; None: it has none such.

    For reports of an operator: there may be any number.
    """
    events: list[EventResource] = []
    after: bytes | None = None
    while True:
        unexplained = await read(
            connection,
            platform_id=platform_id,
            card_transaction_id=card_transaction_id,
            after=after,
            limit=_PAGE,
        )
        if unexplained is None:
            return None
        page = explain(unexplained)
        events += page.items
        after = page.last
        if after is None:
            return events


def packed(state: CardTransaction) -> bytes:
    """Return `state` as the place of a page."""
    credit = state.credit_authorized
    return _PLACE.pack(
        *(getattr(state, name) for name in _NUMBERS),
        credit is not None,
        credit or 0,
        (state.closed_by or "").encode(),
        (state.decline_reason or "").encode(),
    )


def unpacked(place: bytes) -> CardTransaction:
    """Return the state that `packed` has made a place of."""
    *numbers, has_credit, credit, closed_by, reason = _PLACE.unpack(place)
    state = CardTransaction(**dict(zip(_NUMBERS, numbers, strict=True)))
    state.credit_authorized = credit if has_credit else None
    state.closed_by = Closure(text) if (text := _text(closed_by)) else None
    state.decline_reason = DeclineReason(text) if (text := _text(reason)) else None
    return state


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode()
