"""One card transaction event by event: figures, and where its money stands after each of them.

The events are folded with the rules' own `evolve`, so that what is shown at an event is what the
engine decided on. The events of a page are joined with their messages and explained; most purchases
have no others. Of one that has, another statement reads the five columns that the fold needs, of
the first `FOLD_LIMIT` events. Folding takes no connection, and ten thousand events a fifth of a
second: in steps, between which an event loop goes on.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.core import events
from cardledger.ledger.core.card_transaction import UNKNOWN, CardTransaction
from cardledger.ledger.core.entries import ChartAccount, entries
from cardledger.ledger.projections import explain
from cardledger.ledger.projections.event_rows import EventRow, StoredEvent, from_row
from cardledger.ledger.queries import card_transactions
from cardledger.ledger.queries.explained_events import explained
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transaction_events import EventResource
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource

PAGE_EVENTS: Final = 50
"""Events of a page."""

FOLD_LIMIT = 10_000
"""Events that are folded for a page: the first ones, without which no later one has a meaning."""

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
    are those that the purchase has moved money into or out of, of all events. `figures`,
    `balances`, `reason`, why it is VOIDED or was declined, and `is_credit`, that its direction is
    CREDIT, are as of the event. `is_capped`: there are more events than `event_count`, which is
    `FOLD_LIMIT`; what is later is not in the history.
    """

    resource: CardTransactionResource
    event_count: int
    is_capped: bool
    as_of: int
    figures: Figures
    reason: str | None
    is_credit: bool
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfoldedHistory:
    """What `fold` needs, as it was read.

    `every` has all events with their messages, None where they are more than those of a page.
    """

    resource: CardTransactionResource
    rows: Sequence[EventRow]
    is_capped: bool
    as_of: int
    first: int
    last: int
    stored: Sequence[StoredEvent]
    every: Sequence[StoredEvent] | None


async def read(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    card_transaction_id: Id,
    as_of: int | None = None,
    first: int | None = None,
) -> UnfoldedHistory | None:
    """Read the platform's card transaction as of the event `as_of`; None: it has none.

    The page begins with the event `first`, or is the one that has the event `as_of`. What is out of
    range is the nearest in it. `connection` sees one snapshot; `fold` needs none.
    """
    resource = await card_transactions.get(
        connection, platform_id=platform_id, card_transaction_id=card_transaction_id
    )
    if resource is None:
        return None
    few = await _between(connection, card_transaction_id, after=0, until=PAGE_EVENTS + 1)
    is_every = len(few) <= PAGE_EVENTS
    found = (
        [EventRow(*each[:5]) for each in few]
        if is_every
        else await _rows(connection, card_transaction_id)
    )
    count = min(len(found), FOLD_LIMIT)
    shown = min(max(as_of or count, 1), count)
    begin = min(max(first or _page_of(shown), 1), count)
    end = min(begin + PAGE_EVENTS - 1, count)
    return UnfoldedHistory(
        resource=resource,
        rows=found[:count],
        is_capped=len(found) > count,
        as_of=shown,
        first=begin,
        last=end,
        stored=few[begin - 1 : end]
        if end <= len(few)
        else await _between(connection, card_transaction_id, after=begin - 1, until=end),
        every=few if is_every else None,
    )


async def _between(
    connection: AsyncConnection, card_transaction_id: Id, *, after: int, until: int
) -> Sequence[StoredEvent]:
    return await card_transactions.events_between(
        connection, card_transaction_id=card_transaction_id, after=after, until=until
    )


async def _rows(connection: AsyncConnection, card_transaction_id: Id) -> Sequence[EventRow]:
    rows = await connection.execute(
        select(_EVENT.kind, _EVENT.amount, _EVENT.unfunded, _EVENT.final, _EVENT.reason)
        .where(_EVENT.card_transaction_id == card_transaction_id)
        .order_by(_EVENT.sequence)
        .limit(FOLD_LIMIT + 1)
    )
    return [EventRow(*row) for row in rows]


def fold(read_rows: UnfoldedHistory) -> Generator[None, None, PurchaseHistory]:
    """Return the history that was read, in a step for each event."""
    facts = map(from_row, read_rows.rows)
    folded = yield from _fold(
        facts, as_of=read_rows.as_of, first=read_rows.first, last=read_rows.last
    )
    currency = read_rows.resource.held_amount.currency.code
    explained_events = explained(read_rows.stored, currency, folded.before_page)
    return PurchaseHistory(
        resource=read_rows.resource,
        event_count=len(read_rows.rows),
        is_capped=read_rows.is_capped,
        as_of=read_rows.as_of,
        figures=folded.figures,
        reason=folded.reason,
        is_credit=folded.is_credit,
        balances=folded.balances,
        first=read_rows.first,
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
    reason: str | None
    is_credit: bool
    balances: Balances
    before_page: CardTransaction
    page: Sequence[tuple[Balances, Balances, Figures]]
    greatest: int
    accounts: frozenset[str]


def _fold(
    facts: Iterable[events.Event], *, as_of: int, first: int, last: int
) -> Generator[None, None, _Folded]:
    balances, greatest, accounts = _NOTHING, 0, set[str]()
    before_page = UNKNOWN
    page: list[tuple[Balances, Balances, Figures]] = []
    figures: Figures = {}
    reason: str | None = None
    is_credit = False
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
            figures, reason, shown = explain.figures(after), explain.reason(after), moved
            is_credit = after.pays_account
        balances = moved
        yield
    return _Folded(
        figures=figures,
        reason=reason,
        is_credit=is_credit,
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
