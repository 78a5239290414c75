"""Card transactions at any point of their history: the fold of their events up to a sequence.

Functions for psycopg's synchronous connection have the bare name, those for its asynchronous
connection the suffix `_async`. `past_versions` does what `at` does for an event loop.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from psycopg import AsyncConnection, Connection

from cardledger.ledger.core.card_transaction import evolve
from cardledger.ledger.projections.card_transaction import Conversion, RollUp, advance, opened
from cardledger.ledger.projections.card_transaction_rows import COLUMNS, from_row
from cardledger.ledger.projections.event_rows import EventRow
from cardledger.ledger.projections.event_rows import from_row as event_from_row
from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id

Version = tuple[Id, int]
"""A card transaction and one of its sequence numbers."""

_ROLL_UPS: Final = f"""
    SELECT {", ".join(f"t.{column}" for column in COLUMNS)}, u.platform_customer_id
    FROM card_transactions t JOIN customers u ON u.id = t.customer_id WHERE t.id = ANY(%s)
"""

_EVENTS: Final = """
    SELECT e.card_transaction_id, e.message_id, e.recorded_at, e.kind, e.amount, e.unfunded,
        e.final, e.reason
    FROM unnest(%s::uuid[], %s::int4[]) AS w (id, sequence)
    JOIN card_transaction_events e ON e.card_transaction_id = w.id AND e.sequence <= w.sequence
    ORDER BY e.card_transaction_id, e.sequence
"""


# Of next to no card transaction: the statement is sent only where there are some.
_CONVERSIONS: Final = """
    SELECT card_transaction_id, sequence, merchant_amount, merchant_currency, billing_amount, rate
    FROM conversion_details WHERE card_transaction_id = ANY(%s)
"""

Conversions = Mapping[Id, Mapping[int, Conversion]]
"""The conversions of card transactions, by the event that each is about."""


def at(connection: Connection[Any], versions: Sequence[Version]) -> dict[Version, RollUp]:
    """Return the roll-up at each of `versions`; one that does not exist is left out."""
    last = _last(versions)
    with connection.pipeline():
        roll_ups = connection.execute(_ROLL_UPS, [list(last)])
        events = connection.execute(_EVENTS, [list(last), list(last.values())])
    stored = _stored(roll_ups.fetchall())
    rows = []
    if converted := _converted(stored):
        rows = connection.execute(_CONVERSIONS, [converted]).fetchall()
    return _fold(versions, stored, events.fetchall(), conversions_of(rows))


def current(connection: Connection[Any], ids: Collection[Id]) -> dict[Id, RollUp]:
    """Return the current roll-ups of the card transactions `ids`, by id."""
    with connection.cursor(binary=True) as cursor:
        rows = cursor.execute(_ROLL_UPS, [pg_arrays.uuids(ids)]).fetchall()
    return {row[0]: from_row(row) for row in rows}


async def current_async(connection: AsyncConnection[Any], ids: Sequence[Id]) -> dict[Id, RollUp]:
    """Do as `current` does."""
    cursor = await connection.execute(_ROLL_UPS, [list(ids)])
    return {row[0]: from_row(row) async for row in cursor}


_NO_CONVERSIONS: Final[Mapping[int, Conversion]] = {}


def refold(
    stored: RollUp,
    rows: Iterable[Sequence[Any]],
    conversions: Mapping[int, Conversion] = _NO_CONVERSIONS,
) -> Iterable[RollUp]:
    """Yield the roll-up after every event of `rows`; only the identity of `stored` is used.

    Shape: `rows` in order, each (message_id, recorded_at, kind, amount, unfunded, final, reason);
    `conversions` by sequence.
    """
    return continued(opened(stored.identity), rows, conversions)


def continued(
    roll_up: RollUp,
    rows: Iterable[Sequence[Any]],
    conversions: Mapping[int, Conversion] = _NO_CONVERSIONS,
) -> Iterator[RollUp]:
    """Do as `refold` does, with the events that follow those of `roll_up`."""
    for message_id, recorded_at, *columns in rows:
        if conversions and (conversion := conversions.get(roll_up.state.sequence + 1)):
            roll_up = replace(roll_up, conversion=conversion)
        event = event_from_row(EventRow(*columns))
        state = evolve(roll_up.state, event)
        roll_up = advance(roll_up, [event], state, message_id=message_id, recorded_at=recorded_at)
        yield roll_up


def _last(versions: Iterable[Version]) -> dict[Id, int]:
    """Return the highest sequence of each card transaction."""
    last: dict[Id, int] = {}
    for key, sequence in versions:
        last[key] = max(sequence, last.get(key, 0))
    return last


def conversions_of(rows: Iterable[Sequence[Any]]) -> Conversions:
    """Return the conversions in `rows`: card transaction, sequence, and the fields of each."""
    found: dict[Id, dict[int, Conversion]] = defaultdict(dict)
    for key, sequence, *values in rows:
        found[key][sequence] = conversion_of(values)
    return found


def conversion_of(values: Sequence[Any]) -> Conversion:
    """Return the conversion in `values`: the last four columns of a row."""
    merchant_amount, merchant_currency, billing_amount, rate = values
    return Conversion(
        merchant_amount=merchant_amount,
        merchant_currency=merchant_currency,
        billing_amount=billing_amount,
        rate=rate,
    )


def _stored(rows: Iterable[Sequence[Any]]) -> dict[Id, RollUp]:
    return {row[0]: from_row(row) for row in rows}


def _converted(stored: Mapping[Id, RollUp]) -> list[Id]:
    return [key for key, roll_up in stored.items() if roll_up.conversion is not None]


def _fold(
    versions: Iterable[Version],
    stored: Mapping[Id, RollUp],
    events: Iterable[Sequence[Any]],
    conversions: Conversions,
) -> dict[Version, RollUp]:
    events_by_id: dict[Id, list[Sequence[Any]]] = defaultdict(list)
    for key, *columns in events:
        events_by_id[key].append(columns)
    requested = set(versions)
    return {
        (key, roll_up.state.sequence): roll_up
        for key, rows in events_by_id.items()
        for roll_up in refold(stored[key], rows, conversions.get(key, _NO_CONVERSIONS))
        if (key, roll_up.state.sequence) in requested
    }
