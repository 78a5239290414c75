"""What files of networks and statements of the bank book, as rows and SQL.

Importing them makes the rows, by functions of the database; the engine books each once.
Source: docs/decisions/0083-bookings-of-files.md
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from operator import attrgetter
from typing import Any, Final, Self

from psycopg import Connection

from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.bulk_writes import SentUpdate
from cardledger.schema.ids import Id


@dataclass(frozen=True, slots=True)
class SettlementBooking:
    """A row of `settlement_bookings`, without the line that it is of.

    Units: `amount` minor units, always positive, debited to `from_kind` and credited to `to_kind`.
    """

    id: Id
    platform_id: Id
    currency: str
    amount: int
    from_kind: str
    to_kind: str
    posted_for: date
    network: str | None
    booked_at: datetime | None

    def booked(self, *, at: datetime) -> Self:
        """Return the booking after its entry was made."""
        return replace(self, booked_at=at)


COLUMNS: Final = tuple(field.name for field in fields(SettlementBooking))

_LOCK: Final = f"""
    SELECT {", ".join(COLUMNS)} FROM settlement_bookings WHERE id = ANY(%s) ORDER BY id FOR UPDATE
"""


def lock(connection: Connection[Any], ids: Iterable[Id]) -> dict[Id, SettlementBooking]:
    """Lock and return, by id, the bookings with `ids` that exist."""
    cursor = connection.cursor(binary=True).execute(_LOCK, [pg_arrays.uuids(list(ids))])
    return {row[0]: SettlementBooking(*row) for row in cursor}


_LOCK_FREE: Final = "SELECT id FROM settlement_bookings WHERE id = ANY(%s) FOR UPDATE SKIP LOCKED"
_EXISTING: Final = "SELECT id FROM settlement_bookings WHERE id = ANY(%s)"


def locked_by_others(connection: Connection[Any], ids: Iterable[Id]) -> set[Id]:
    """Lock what is free of the bookings with `ids`; return the others."""
    wanted = [pg_arrays.uuids(list(ids))]
    with connection.pipeline():
        free = connection.cursor(binary=True).execute(_LOCK_FREE, wanted)
        existing = connection.cursor(binary=True).execute(_EXISTING, wanted)
    locked = {key for (key,) in free.fetchall()}
    return {key for (key,) in existing.fetchall()} - locked


_END: Final = """
    UPDATE settlement_bookings b SET booked_at = e.booked_at
    FROM unnest(%s, %s) AS e (id, booked_at) WHERE b.id = e.id AND b.booked_at IS NULL
"""
_result_row: Final = attrgetter("id", "booked_at")


def end(connection: Connection[Any], bookings: Sequence[SettlementBooking]) -> SentUpdate:
    """Store when bookings were made that are due."""
    rows = list(map(_result_row, bookings))
    columns = pg_arrays.columns(rows, "uuid", "timestamptz")
    return SentUpdate(connection.execute(_END, columns), len(rows))
