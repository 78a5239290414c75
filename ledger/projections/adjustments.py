"""Adjustments: corrections of the books that people have decided on, as rows and SQL.

People prepare and approve them by functions of the database; the engine books what is approved.
Source: docs/decisions/0069-adjustments.md
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Self

from psycopg import Connection

from cardledger.ledger.storage import pg_arrays
from cardledger.ledger.storage.bulk_writes import SentUpdate
from cardledger.schema.ids import Id

SOURCE: Final = "adjustments"
"""The source of the messages that book them."""

MOVE: Final = "MOVE"
"""An amount from one system account to another."""

WRITE_OFF: Final = "WRITE_OFF"
"""An amount that a card transaction owes, given up."""

RESOLVE_SUSPENSE: Final = "RESOLVE_SUSPENSE"
"""An item of the suspense account, taken back."""

APPROVED: Final = "APPROVED"
BOOKED: Final = "BOOKED"
REFUSED: Final = "REFUSED"


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A row of `adjustments`, without who decided on it."""

    id: Id
    kind: str
    platform_id: Id
    currency: str
    amount: int
    from_kind: str | None
    to_kind: str | None
    card_transaction_id: Id | None
    suspense_id: Id | None
    state: str
    booked_at: datetime | None
    refusal: str | None

    def booked(self, *, at: datetime) -> Self:
        """Return the adjustment after its entries were made."""
        return replace(self, state=BOOKED, booked_at=at)

    def refused(self, refusal: str) -> Self:
        """Return the adjustment after it turned out that it cannot be booked."""
        return replace(self, state=REFUSED, refusal=refusal)


COLUMNS: Final = tuple(field.name for field in fields(Adjustment))

_LOCK: Final = f"""
    SELECT {", ".join(COLUMNS)} FROM adjustments WHERE id = ANY(%s) ORDER BY id FOR UPDATE
"""


def lock(connection: Connection[Any], ids: Iterable[Id]) -> dict[Id, Adjustment]:
    """Lock and return, by id, the adjustments with `ids` that exist."""
    cursor = connection.cursor(binary=True).execute(_LOCK, [pg_arrays.uuids(list(ids))])
    return {row[0]: Adjustment(*row) for row in cursor}


_LOCK_FREE: Final = "SELECT id FROM adjustments WHERE id = ANY(%s) FOR UPDATE SKIP LOCKED"
_EXISTING: Final = "SELECT id FROM adjustments WHERE id = ANY(%s)"


def locked_by_others(connection: Connection[Any], ids: Iterable[Id]) -> set[Id]:
    """Lock what is free of the adjustments with `ids`; return the others."""
    wanted = [pg_arrays.uuids(list(ids))]
    with connection.pipeline():
        free = connection.cursor(binary=True).execute(_LOCK_FREE, wanted)
        existing = connection.cursor(binary=True).execute(_EXISTING, wanted)
    locked = {key for (key,) in free.fetchall()}
    return {key for (key,) in existing.fetchall()} - locked


_END: Final = """
    UPDATE adjustments a SET state = e.state, booked_at = e.booked_at, refusal = e.refusal
    FROM unnest(%s, %s, %s, %s) AS e (id, state, booked_at, refusal)
    WHERE a.id = e.id AND a.state = 'APPROVED'
"""
_result_row: Final = attrgetter("id", "state", "booked_at", "refusal")


def end(connection: Connection[Any], adjustments: Sequence[Adjustment]) -> SentUpdate:
    """Store the results of adjustments that are `APPROVED`."""
    rows = list(map(_result_row, adjustments))
    columns = pg_arrays.columns(rows, "uuid", "text", "timestamptz", "text")
    return SentUpdate(connection.execute(_END, columns), len(rows))
