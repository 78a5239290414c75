"""Events of card transactions, read in pages: nothing bounds how many a card transaction has."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection, Connection

from cardledger.ledger.projections.history import Conversions, conversions_of
from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id


class Span(NamedTuple):
    """Events of a card transaction: after a sequence, and up to one."""

    key: Id
    after: int
    until: int

    @property
    def length(self) -> int:
        """The number of events."""
        return self.until - self.after


class Events(NamedTuple):
    """Events by card transaction, in order, and the conversions of some.

    Shape: as `history.refold` takes them. The event before each span comes first.
    """

    rows: Mapping[Id, Sequence[Sequence[Any]]]
    conversions: Conversions


def pages(spans: Iterable[Span], size: int) -> Iterator[list[Span]]:
    """Yield `spans` in parts, each of at most `size` events of one or more card transactions."""
    page: list[Span] = []
    room = size
    for whole in spans:
        after = whole.after
        while True:
            part = Span(whole.key, after, min(whole.until, after + room))
            page.append(part)
            room -= part.length
            after = part.until
            if not room:
                yield page
                page, room = [], size
            if after == whole.until:
                break
    if page:
        yield page


_OF_SPANS: Final = """
    FROM unnest(%(ids)s::uuid[], %(from)s::int4[], %(until)s::int4[]) AS w (id, first, last)
"""

_EVENTS: Final = f"""
    SELECT e.card_transaction_id, e.message_id, e.recorded_at, e.kind, e.amount, e.unfunded,
        e.final, e.reason
    {_OF_SPANS} JOIN card_transaction_events e
        ON e.card_transaction_id = w.id AND e.sequence BETWEEN w.first AND w.last
    ORDER BY e.card_transaction_id, e.sequence
"""

# Of next to no card transaction: the statement is sent only where there are some.
_CONVERSIONS: Final = f"""
    SELECT c.card_transaction_id, c.sequence, c.merchant_amount, c.merchant_currency,
        c.billing_amount, c.rate
    {_OF_SPANS} JOIN conversion_details c
        ON c.card_transaction_id = w.id AND c.sequence BETWEEN w.first AND w.last
"""


def read(connection: Connection[Any], spans: Sequence[Span], converted: Sequence[Span]) -> Events:
    """Return the events of `spans`, and the conversions of those `converted`."""
    rows = connection.execute(_EVENTS, _arguments(spans)).fetchall()
    found = []
    if converted:
        found = connection.execute(_CONVERSIONS, _arguments(converted)).fetchall()
    return _events(rows, found)


async def read_async(
    connection: AsyncConnection[Any], spans: Sequence[Span], converted: Sequence[Span]
) -> Events:
    """Do as `read` does."""
    rows = await (await connection.execute(_EVENTS, _arguments(spans))).fetchall()
    found = []
    if converted:
        found = await (await connection.execute(_CONVERSIONS, _arguments(converted))).fetchall()
    return _events(rows, found)


def _events(rows: Iterable[Sequence[Any]], conversions: Iterable[Sequence[Any]]) -> Events:
    by_id: dict[Id, list[Sequence[Any]]] = defaultdict(list)
    for key, *columns in rows:
        by_id[key].append(columns)
    return Events(by_id, conversions_of(conversions))


def _arguments(spans: Sequence[Span]) -> dict[str, Any]:
    return {
        "ids": pg_arrays.uuids([span.key for span in spans]),
        "from": pg_arrays.integers([span.after for span in spans]),
        "until": pg_arrays.integers([span.until for span in spans]),
    }
