"""Card transactions as they were: the fold of their events up to a place."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from psycopg import AsyncConnection, Connection

from cardledger.ledger.core.card_transaction import evolve
from cardledger.ledger.projections import card_transaction as roll_up
from cardledger.ledger.projections import card_transaction_rows
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.projections.event_rows import EventRow, from_row
from cardledger.ledger.storage import pg_arrays
from cardledger.schema.ids import Id

Place = tuple[Id, int]
"""A card transaction and one of its sequence numbers."""

_ROLL_UPS: Final = (
    f"SELECT {', '.join(f't.{column}' for column in card_transaction_rows.COLUMNS)},"
    " u.platform_customer_id"
    " FROM card_transactions t JOIN customers u ON u.id = t.customer_id WHERE t.id = ANY(%s)"
)
_EVENTS: Final = (
    "SELECT e.card_transaction_id, e.message_id, e.recorded_at, e.kind, e.amount, e.unfunded,"
    " e.final, e.reason"
    " FROM unnest(%s::uuid[], %s::int4[]) AS w (id, sequence)"
    " JOIN card_transaction_events e ON e.card_transaction_id = w.id AND e.sequence <= w.sequence"
    " ORDER BY e.card_transaction_id, e.sequence"
)


def at(connection: Connection[Any], places: Sequence[Place]) -> dict[Place, RollUp]:
    """Return the roll-up at each of `places`; one that does not exist is left out."""
    last = _last(places)
    with connection.pipeline():
        roll_ups = connection.execute(_ROLL_UPS, [list(last)])
        rows = connection.execute(_EVENTS, [list(last), list(last.values())])
    return _pick(places, roll_ups.fetchall(), rows.fetchall())


async def at_async(
    connection: AsyncConnection[Any], places: Sequence[Place]
) -> dict[Place, RollUp]:
    """Do as `at` does, for an event loop."""
    last = _last(places)
    roll_ups = await (await connection.execute(_ROLL_UPS, [list(last)])).fetchall()
    cursor = await connection.execute(_EVENTS, [list(last), list(last.values())])
    return _pick(places, roll_ups, await cursor.fetchall())


def now(connection: Connection[Any], ids: Collection[Id]) -> dict[Id, RollUp]:
    """Do as `today` does, for a thread."""
    with connection.cursor(binary=True) as cursor:
        rows = cursor.execute(_ROLL_UPS, [pg_arrays.uuids(ids)]).fetchall()
    return {row[0]: card_transaction_rows.from_row(row) for row in rows}


async def today(connection: AsyncConnection[Any], ids: Sequence[Id]) -> dict[Id, RollUp]:
    """Return the card transactions `ids` as they are now, by id."""
    cursor = await connection.execute(_ROLL_UPS, [list(ids)])
    return {row[0]: card_transaction_rows.from_row(row) async for row in cursor}


def refold(today: RollUp, rows: Iterable[Sequence[Any]]) -> Iterable[RollUp]:
    """Yield the roll-up after every event of `rows`; only the identity of `today` is used.

    Shape: `rows` in order, each (message_id, recorded_at, kind, amount, unfunded, final, reason).
    """
    folded = roll_up.opened(today.identity)
    for message_id, recorded_at, *fact in rows:
        event = from_row(EventRow(*fact))
        state = evolve(folded.state, event)
        folded = roll_up.advance(
            folded, [event], state, message_id=message_id, recorded_at=recorded_at
        )
        yield folded


def _last(places: Iterable[Place]) -> dict[Id, int]:
    last: dict[Id, int] = {}
    for key, sequence in places:
        last[key] = max(sequence, last.get(key, 0))
    return last


def _pick(
    places: Iterable[Place], roll_ups: Iterable[Sequence[Any]], rows: Iterable[Sequence[Any]]
) -> dict[Place, RollUp]:
    today = {row[0]: card_transaction_rows.from_row(row) for row in roll_ups}
    by_card_transaction: dict[Id, list[Sequence[Any]]] = defaultdict(list)
    for key, *rest in rows:
        by_card_transaction[key].append(rest)
    wanted = set(places)
    return {
        (key, folded.state.sequence): folded
        for key, events in by_card_transaction.items()
        for folded in refold(today[key], events)
        if (key, folded.state.sequence) in wanted
    }
