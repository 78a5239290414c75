"""Lists for an operator, of all platforms: card transactions, and open exceptions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from psycopg import AsyncConnection

from cardledger.ledger.core.status import Status
from cardledger.ledger.projections.card_transaction import RollUp
from cardledger.ledger.projections.card_transaction_rows import COLUMNS, from_row, stored_statuses
from cardledger.ledger.storage.ids import first_id_at
from cardledger.schema.ids import Id

_CLOCK_MARGIN: Final = timedelta(hours=1)
"""How far the clock that made an id may be behind PostgreSQL's, which recorded the time."""

_FIRST_TIME: Final = datetime(1970, 1, 2, tzinfo=UTC)
"""No id is older."""


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
        first = first_id_at(max(filters.since, _FIRST_TIME) - _CLOCK_MARGIN)
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
        yield "t.status = ANY(%(status)s)", {"status": list(stored_statuses(filters.status))}
    if filters.status is Status.EXCEPTION:
        # Implied by the status: the partial index of exceptions finds the few that match.
        yield "t.debt_since IS NOT NULL", {}


# --- exceptions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenException:
    """A card transaction for which money is due, and the event since which it is.

    `event` is what the network sent, rather than the pull that it led to. `source` and `reference`
    are None when a timer or the ledger itself sent the event.
    """

    roll_up: RollUp
    since: datetime
    event: str | None
    source: str | None
    reference: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSum:
    """What is due for the exceptions of one currency and one age, in minor units.

    Of `due`, the network has taken what is `owed`; the rest is for holds.
    """

    currency: str
    bucket: int  # Index into `BUCKET_DAYS`.
    count: int
    due: int
    owed: int


Place = tuple[datetime, Id]
"""Since when an exception is open, and its card transaction: the order of the list."""

BUCKET_DAYS: Final = (0, 2, 4, 8, 15)
"""The age in whole days with which each bucket begins."""

_EXCEPTIONS: Final = f"""
    SELECT e.kind, o.source, o.reference, {_COLUMNS}, u.platform_customer_id
    FROM (
        SELECT * FROM card_transactions
        WHERE debt_since IS NOT NULL AND status = 'EXCEPTION'
            AND (%(platform)s::uuid IS NULL OR platform_id = %(platform)s)
            AND (%(since)s::timestamptz IS NULL OR (debt_since, id) > (%(since)s, %(after)s))
        ORDER BY debt_since, id LIMIT %(limit)s
    ) t
    JOIN customers u ON u.id = t.customer_id
    LEFT JOIN LATERAL (
        SELECT kind FROM card_transaction_events
        WHERE card_transaction_id = t.id AND message_id = t.debt_id
        ORDER BY starts_with(kind, 'PULL_'), sequence LIMIT 1
    ) e ON true
    LEFT JOIN outcomes o ON o.message_id = t.debt_id AND o.customer_id = t.customer_id
    ORDER BY t.debt_since, t.id
"""


async def exceptions(
    connection: AsyncConnection[Any],
    *,
    platform_id: Id | None = None,
    after: Place | None = None,
    limit: int,
) -> list[OpenException]:
    """Return at most `limit` open exceptions, the oldest first.

    The partial index of exceptions has only them. Of all platforms, it is read whole to sort them.
    """
    since, key = after or (None, None)
    named = {"platform": platform_id, "since": since, "after": key, "limit": limit}
    cursor = await connection.execute(_EXCEPTIONS, named)
    return [_exception(row) for row in await cursor.fetchall()]


def _exception(row: Sequence[Any]) -> OpenException:
    kind, source, reference, *columns = row
    roll_up = from_row(columns)
    assert roll_up.debt_since is not None, "the statement selects debts"
    return OpenException(
        roll_up=roll_up,
        since=roll_up.debt_since,
        event=kind,
        source=source,
        reference=reference,
    )


_DUE: Final = """
    SELECT currency, bucket, count(*), sum(due)::numeric, sum(owed)::numeric FROM (
        SELECT currency,
            open_pull::numeric + unpaid AS due,
            greatest(settled - pulled + released - (written_off - debits_written_off), 0)::numeric
                + unpaid AS owed,
            greatest(
                width_bucket(extract(epoch FROM now() - debt_since) / 86400, %(days)s::numeric[]), 1
            ) - 1 AS bucket
        FROM card_transactions
        WHERE debt_since IS NOT NULL AND status = 'EXCEPTION'
            AND (%(platform)s::uuid IS NULL OR platform_id = %(platform)s)
    ) t
    GROUP BY currency, bucket ORDER BY currency, bucket
"""


async def due_sums(
    connection: AsyncConnection[Any], *, platform_id: Id | None = None
) -> list[DueSum]:
    """Return what is due for all open exceptions, by currency and age at the time of `now`."""
    named = {"days": list(BUCKET_DAYS), "platform": platform_id}
    cursor = await connection.execute(_DUE, named)
    return [
        DueSum(currency=currency, bucket=bucket, count=number, due=int(due), owed=int(owed))
        for currency, bucket, number, due, owed in await cursor.fetchall()
    ]


async def now(connection: AsyncConnection[Any]) -> datetime:
    """Return the time of PostgreSQL's clock at which the database transaction began."""
    row = await (await connection.execute("SELECT now()")).fetchone()
    assert row is not None, "a SELECT without FROM has a row"
    moment: datetime = row[0]
    return moment
