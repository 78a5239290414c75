"""One card transaction event by event: figures, and where its money stands after each of them.

The events are folded with the rules' own `evolve`, so that what is shown at an event is what the
engine decided on. One statement reads the five columns that the fold needs; only the events of a
page are joined with their messages and explained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core import events
from cardledger.ledger.core.card_transaction import UNKNOWN, CardTransaction
from cardledger.ledger.core.entries import ChartAccount, entries
from cardledger.ledger.projections import explain
from cardledger.ledger.projections.event_rows import EventRow, from_row
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.explained_events import explained
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transaction_events import EventResource
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource

PAGE_EVENTS: Final = 50
"""Events of a page."""

Balances = Mapping[str, int]
"""What the purchase has moved into each account of the chart, less what it moved out of it."""

Figures = Mapping[str, int | str | None]
"""The public figures, by the names of `EventResource.changes`."""

_EVENT: Final = tables.card_transaction_events.c
_NOTHING: Final[Balances] = {account.value: 0 for account in ChartAccount}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An event with the balances before and after it, and the figures after it."""

    event: EventResource
    before: Balances
    after: Balances
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseHistory:
    """A card transaction as of one of its events, and a page of its events.

    `greatest` is the largest balance, in minor units, that any account had at any event; `accounts`
    are those that the purchase has moved money into or out of, of all events. `figures` and
    `balances` are as of the event.
    """

    resource: CardTransactionResource
    event_count: int
    as_of: int
    figures: Figures
    balances: Balances
    first: int
    steps: Sequence[Step]
    greatest: int
    accounts: frozenset[str]

    @property
    def last(self) -> int:
        """The sequence of the last event of the page."""
        return self.first + len(self.steps) - 1

    @property
    def previous_first(self) -> int | None:
        """The first event of the page before this one, None when there is none."""
        return max(self.first - PAGE_EVENTS, 1) if self.first > 1 else None

    @property
    def next_first(self) -> int | None:
        """The first event of the page after this one, None when there is none."""
        return self.last + 1 if self.last < self.event_count else None


async def read(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    card_transaction_id: Id,
    as_of: int | None = None,
    first: int | None = None,
) -> PurchaseHistory | None:
    """Return the platform's card transaction as of the event `as_of`; None: it has none.

    The page begins with the event `first`, or is the one that has the event `as_of`. What is out of
    range is the nearest in it. `connection` sees one snapshot.
    """
    resource = await card_transactions.get(
        connection, platform_id=platform_id, card_transaction_id=card_transaction_id
    )
    if resource is None:
        return None
    rows = await connection.execute(
        select(_EVENT.kind, _EVENT.amount, _EVENT.unfunded, _EVENT.final, _EVENT.reason)
        .where(_EVENT.card_transaction_id == card_transaction_id)
        .order_by(_EVENT.sequence)
    )
    facts = [from_row(EventRow(*row)) for row in rows]
    shown = min(max(as_of or len(facts), 1), len(facts))
    begin = min(max(first or _page_of(shown), 1), len(facts))
    end = min(begin + PAGE_EVENTS - 1, len(facts))
    folded = _fold(facts, as_of=shown, first=begin, last=end)
    stored = await card_transactions.events_between(
        connection, card_transaction_id=card_transaction_id, after=begin - 1, until=end
    )
    explained_events = explained(stored, resource.held_amount.currency.code, folded.before_page)
    return PurchaseHistory(
        resource=resource,
        event_count=len(facts),
        as_of=shown,
        figures=folded.figures,
        balances=folded.balances,
        first=begin,
        steps=[
            Step(event=event, before=before, after=after, figures=figures)
            for event, (before, after, figures) in zip(explained_events, folded.page, strict=True)
        ],
        greatest=folded.greatest,
        accounts=folded.accounts,
    )


def _page_of(sequence: int) -> int:
    """Return the first event of the page that has the event `sequence`."""
    return (sequence - 1) // PAGE_EVENTS * PAGE_EVENTS + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folded:
    figures: Figures
    balances: Balances
    before_page: CardTransaction
    page: Sequence[tuple[Balances, Balances, Figures]]
    greatest: int
    accounts: frozenset[str]


def _fold(facts: Sequence[events.Event], *, as_of: int, first: int, last: int) -> _Folded:
    balances, greatest, accounts = _NOTHING, 0, set[str]()
    before_page = UNKNOWN
    page: list[tuple[Balances, Balances, Figures]] = []
    figures: Figures = {}
    shown = _NOTHING
    for sequence, (before, event, after) in enumerate(explain.steps(facts), start=1):
        moved = _moved(balances, event)
        if moved is not balances:
            accounts |= {name for name in moved if moved[name] != balances[name]}
            greatest = max(greatest, *map(abs, moved.values()))
        if sequence == first:
            before_page = before
        if first <= sequence <= last:
            page.append((balances, moved, explain.figures(after)))
        if sequence == as_of:
            figures, shown = explain.figures(after), moved
        balances = moved
    return _Folded(
        figures=figures,
        balances=shown,
        before_page=before_page,
        page=page,
        greatest=greatest,
        accounts=frozenset(accounts),
    )


def _moved(balances: Balances, event: events.Event) -> Balances:
    """Return `balances` after the entries of `event`: from the debit to the credit account."""
    moved = entries(event)
    if not moved:
        return balances
    after = dict(balances)
    for entry in moved:
        after[entry.debit.value] -= entry.amount
        after[entry.credit.value] += entry.amount
    return after
