"""Where every cent went: each event of a card transaction as arrows between lanes.

A lane is an account of the chart; its band is what the purchase has moved there so far, as wide as
the amount, hollow where it is what has left. Coordinates are percentages of the width, so that one
drawing fits every screen, and pixels from the middle of a row, whose height is that of its text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cardledger.api.console.html import formats
from cardledger.ledger.queries.console.purchase_history import Balances, PurchaseHistory, Step
from cardledger.schema.wire.cards.card_transaction_events import EntryResource

_TITLES: Final = {
    "CUSTOMER": "Customer funds",
    "CARD_HOLDS": "Card holds",
    "NETWORK_SETTLEMENT": "Network settlement",
    "RECEIVABLE": "Receivable",
    "OPERATOR_LOSS": "Operator loss",
}
_USUAL: Final = ("CUSTOMER", "CARD_HOLDS", "NETWORK_SETTLEMENT", "RECEIVABLE")
# How far an account is from the customer: away from the customer is forward.
_DISTANCES: Final = {
    "CUSTOMER": 0,
    "OPERATOR_LOSS": 1,
    "CARD_HOLDS": 2,
    "RECEIVABLE": 3,
    "NETWORK_SETTLEMENT": 4,
}
_ASSETS: Final = frozenset({"RECEIVABLE", "OPERATOR_LOSS"})  # They grow by debits.
_WIDEST: Final = 30  # Pixels of the greatest balance.
_NARROWEST: Final = 3
_GAP: Final = 15  # Pixels between two arrows of an event, above and below the middle.

FIGURES: Final = (
    ("authorizedAmount", "authorized"),
    ("pullSummary.totalAmount", "pulled"),
    ("settledAmount", "settled"),
    ("refundedAmount", "refunded"),
    ("releaseSummary.totalAmount", "released"),
    ("heldAmount", "held"),
    ("owedAmount", "owed"),
    ("writtenOffAmount", "written off"),
)
"""The figures of a card transaction that are amounts, with their titles."""

_OPTIONAL: Final = {"writtenOffAmount"}
_SIGNED: Final = {"settledAmount"}  # Of a credit: the network pays the account.


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """An account, and where its lane is, in percent of the width."""

    account: str
    title: str
    x: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """An entry: money from one lane to another, `dy` pixels below the middle of the row."""

    x1: str
    x2: str
    middle: str
    dy: int
    amount: str
    kind: str  # forward: away from the customer; back: towards the customer.


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """What stands in a lane: `width` pixels, hollow when it has left the account."""

    account: str
    x: str
    width: int
    offset: str
    is_hollow: bool

    @property
    def sides(self) -> tuple[str, str]:
        """Where its two sides are, from its middle."""
        return f"{-self.width / 2:g}", f"{self.width / 2:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One event; it `is_later` than the one that the page is as of."""

    step: Step
    is_later: bool
    before: Sequence[Band]
    after: Sequence[Band]
    arrows: Sequence[Arrow]
    label: str | None  # Of an event that moves no money.
    changed: Sequence[tuple[str, str, str]]  # Title, before, after.
    status: str | None  # The new one.
    available: str
    held: str
    owed: str

    @property
    def figures(self) -> str:
        """The names of the figures that the event changed, separated by spaces."""
        return " ".join(change.field for change in self.step.event.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The lanes and a row for each event of a page."""

    lanes: Sequence[Lane]
    rows: Sequence[Row]
    figures: Sequence[tuple[str, str, str]]  # Name, title, amount.
    totals: Sequence[tuple[str, str]]  # Account, what it has in the end.


def draw(history: PurchaseHistory) -> Picture:
    """Return the picture of a page of events."""
    lanes = _lanes(history)
    currency = history.resource.held_amount.currency.code
    return Picture(
        lanes=lanes,
        rows=[_row(step, history, lanes, currency) for step in history.steps],
        figures=[*_figures(history, currency)],
        totals=[
            (lane.account, formats.decimal(_shown(lane, history.balances), currency, signed=True))
            for lane in lanes
        ],
    )


def _figures(history: PurchaseHistory, currency: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, title and amount of each figure as of the event."""
    for name, title in FIGURES:
        amount = int(history.figures[name] or 0)
        if amount or name not in _OPTIONAL:
            signed = history.is_credit and name in _SIGNED
            yield name, title, formats.decimal(amount, currency, signed=signed)


def _lanes(history: PurchaseHistory) -> list[Lane]:
    accounts = [name for name in _TITLES if name in _USUAL or name in history.accounts]
    share = 100 / len(accounts)
    return [
        Lane(account=name, title=_TITLES[name], x=f"{(place + 0.5) * share:g}%")
        for place, name in enumerate(accounts)
    ]


def _row(step: Step, history: PurchaseHistory, lanes: Sequence[Lane], currency: str) -> Row:
    event = step.event
    amount = formats.decimal(event.amount.amount, currency)
    changed = list(_changed(step, currency))
    return Row(
        step=step,
        is_later=event.sequence > history.as_of,
        before=list(_bands(step.before, lanes, history.greatest)),
        after=list(_bands(step.after, lanes, history.greatest)),
        arrows=list(_arrows(event.entries, lanes, currency)),
        label=None if event.entries else f"{formats.words(event.type)} {amount}",
        changed=changed,
        status=next((str(each.after) for each in event.changes if each.field == "status"), None),
        available=formats.decimal(step.after["CUSTOMER"], currency, signed=True),
        held=formats.decimal(int(step.figures["heldAmount"] or 0), currency),
        owed=formats.decimal(int(step.figures["owedAmount"] or 0), currency),
    )


def _changed(step: Step, currency: str) -> Iterator[tuple[str, str, str]]:
    titles = dict(FIGURES)
    for change in step.event.changes:
        title = titles.get(change.field)
        if title is not None:
            before, after = (int(value or 0) for value in (change.before, change.after))
            yield title, formats.decimal(before, currency), formats.decimal(after, currency)


def _shown(lane: Lane, balances: Balances) -> int:
    """Return a balance with the sign that people give it: what is owed to an asset is positive."""
    balance = balances[lane.account]
    return -balance if lane.account in _ASSETS else balance


def _bands(balances: Balances, lanes: Sequence[Lane], greatest: int) -> Iterator[Band]:
    for lane in lanes:
        balance = _shown(lane, balances)
        if balance:
            width = max(abs(balance) * _WIDEST // greatest, _NARROWEST)
            yield Band(
                account=lane.account,
                x=lane.x,
                width=width,
                offset=f"{-width / 2:g}",
                is_hollow=balance < 0,
            )


def _arrows(
    entries: Sequence[EntryResource], lanes: Sequence[Lane], currency: str
) -> Iterator[Arrow]:
    places = {lane.account: lane.x for lane in lanes}
    for number, entry in enumerate(entries):
        x1, x2 = places[entry.debit], places[entry.credit]
        is_forward = _DISTANCES[entry.credit] > _DISTANCES[entry.debit]
        yield Arrow(
            x1=x1,
            x2=x2,
            middle=f"{(float(x1[:-1]) + float(x2[:-1])) / 2:g}%",
            dy=(2 * number - len(entries) + 1) * _GAP,
            amount=formats.decimal(entry.amount.amount, currency),
            kind="forward" if is_forward else "back",
        )
