"""Lists for an operator, of all platforms."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from psycopg import AsyncConnection

from cardledger.ledger.core.status import Status
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.projections.card_transaction_rows import COLUMNS, from_row
from cardledger.ledger.storage.ids import first_id_at
from cardledger.schema.ids import Id

_CLOCK_MARGIN: Final = timedelta(hours=1)
"""How far the clock that made an id may be behind PostgreSQL's, which recorded the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilters:
    """Conditions on card transactions; None matches every one. `after` is the last id shown."""

    status: Status | None = None
    card_id: Id | None = None
    customer_id: Id | None = None
    platform_id: Id | None = None
    since: datetime | None = None
    after: Id | None = None


_COLUMNS: Final = ", ".join(f"t.{column}" for column in COLUMNS)

_LIST: Final = f"""
    SELECT {_COLUMNS}, u.platform_customer_id
    FROM card_transactions t JOIN customers u ON u.id = t.customer_id
    WHERE {{conditions}} ORDER BY t.id DESC LIMIT %(limit)s
"""


async def card_transactions(
    connection: AsyncConnection[Any], filters: ListFilters, *, limit: int
) -> list[RollUp]:
    """Return at most `limit` card transactions that match, the newest first.

    A rare status has no index, except EXCEPTION: the statement reads all card transactions that are
    older than the last one shown. The connection has to have a statement time limit.
    """
    cursor = await connection.execute(*query(filters, limit=limit))
    return [from_row(row) for row in await cursor.fetchall()]


def query(filters: ListFilters, *, limit: int) -> tuple[bytes, dict[str, object]]:
    """Return the statement of a page, and the values of its parameters."""
    conditions = dict(_conditions(filters))
    statement = _LIST.format(conditions=" AND ".join(conditions) or "true")
    values = {name: value for named in conditions.values() for name, value in named.items()}
    return statement.encode(), {**values, "limit": limit}


def _conditions(filters: ListFilters) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield conditions of SQL, each with the values of its parameters."""
    if filters.after is not None:
        yield "t.id < %(after)s", {"after": filters.after}
    if filters.since is not None:
        # The time is in the id, which has an index.
        first = first_id_at(filters.since - _CLOCK_MARGIN)
        yield "t.id >= %(first)s", {"first": first}
        yield "t.created_at >= %(since)s", {"since": filters.since}
    if filters.platform_id is not None:
        yield "t.platform_id = %(platform)s", {"platform": filters.platform_id}
    if filters.customer_id is not None:
        yield "t.customer_id = %(customer)s", {"customer": filters.customer_id}
    if filters.card_id is not None:
        # No index begins with the card; one begins with the cardholder.
        yield "t.customer_id = (SELECT customer_id FROM cards WHERE id = %(card)s)", {}
        yield "t.card_id = %(card)s", {"card": filters.card_id}
    if filters.status is not None:
        yield "t.status = %(status)s", {"status": filters.status}
    if filters.status is Status.EXCEPTION:
        # Implied by the status: the partial index on debts finds the few that match.
        yield "t.debt_id IS NOT NULL", {}
