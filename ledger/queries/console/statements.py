"""The statement of an internal account: its entries, the newest first, with the running balance.

Read by the position of the entries on the account, so that a page costs the same wherever it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import BindParameter, bindparam, text
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.queries.console.entry_subjects import (
    COLUMNS,
    JOINS,
    Subject,
    event_of,
    subject_of,
)
from cardledger.schema import tables
from cardledger.schema.ids import Id

_ID: Final = tables.entries.c.subject_id.type


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An entry on the account: `amount` in minor units, negative when it debits the account.

    `event` is that of the card transaction, or what else was booked. `other` is the account on the
    other side: of the chart, or CUSTOMER.
    """

    version: int
    recorded_at: datetime
    event: str
    subject: Subject
    other: str
    amount: int
    balance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a statement; `next_before` is the position that the next one ends before."""

    lines: Sequence[Line]
    next_before: int | None


# The other side of an entry on the account of a customer is an account of the chart, except where
# money goes from one account to another at once.
_LINES: Final = text(
    f"""
    SELECT e.account_version, e.recorded_at, e.amount, e.balance_after,
        e.credit_account_id = e.account_id AS is_credit, coalesce(s.kind, 'CUSTOMER') AS other,
        {COLUMNS}
    FROM (
        SELECT account_version, recorded_at, subject_id, sequence, customer_id, account_id,
            debit_account_id, credit_account_id, amount, balance_after
        FROM entries
        WHERE account_id = :account_id AND account_version > :after AND account_version < :before
        ORDER BY account_version DESC LIMIT :limit
    ) e
    LEFT JOIN LATERAL (
        SELECT kind FROM system_accounts
        WHERE id = CASE e.account_id WHEN e.debit_account_id THEN e.credit_account_id
            ELSE e.debit_account_id END
        LIMIT 1
    ) s ON true
    {JOINS}
    ORDER BY e.account_version DESC
    """
)

# Entries of an account are committed in the order of their positions, so the last one recorded
# until a time is found by halving: some twenty look-ups among a million.
_LAST_UNTIL: Final = text(
    """
    WITH RECURSIVE halved (low, high) AS (
        SELECT 0::bigint, coalesce(
            (SELECT account_version FROM entries WHERE account_id = :account_id
                AND account_version IS NOT NULL ORDER BY account_version DESC LIMIT 1), 0
        )
        UNION ALL
        SELECT CASE WHEN e.recorded_at <= :until THEN m.middle ELSE m.low END,
            CASE WHEN e.recorded_at <= :until THEN m.high ELSE m.middle - 1 END
        FROM (SELECT low, high, low + (high - low + 1) / 2 AS middle FROM halved WHERE low < high) m
        CROSS JOIN LATERAL (
            SELECT recorded_at FROM entries
            WHERE account_id = :account_id AND account_version = m.middle LIMIT 1
        ) e
    )
    SELECT low FROM halved WHERE low = high
    """
)
_FIRST: Final = 2**63 - 1


async def page(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    account_id: Id,
    before: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int,
) -> Page:
    """Return a page of the statement of the account, which the caller's platform has.

    It ends before the position `before`, and has what was recorded `since` a time and `until` one.
    """
    end = _FIRST if before is None else before
    if until is not None:
        end = min(end, await _last_until(connection, account_id, until) + 1)
    after = 0
    if since is not None:
        after = await _last_until(connection, account_id, since - timedelta(microseconds=1))
    rows = await connection.execute(
        _LINES.bindparams(
            _key(account_id),
            bindparam("after", after),
            bindparam("before", end),
            bindparam("limit", limit + 1),
        )
    )
    found = rows.all()
    lines = [_line(row) for row in found[:limit]]
    return Page(lines=lines, next_before=lines[-1].version if len(found) > limit else None)


async def _last_until(connection: AsyncConnection, account_id: Id, until: datetime) -> int:
    """Return the position of the last entry that was recorded until a time; 0: there is none."""
    until_then = bindparam("until", until, TIMESTAMP(timezone=True))
    last = await connection.scalar(_LAST_UNTIL.bindparams(_key(account_id), until_then))
    return last or 0


def _key(account_id: Id) -> BindParameter[Any]:
    return bindparam("account_id", account_id, _ID)


def _line(row: Any) -> Line:  # noqa: ANN401 - a row
    return Line(
        version=row.account_version,
        recorded_at=row.recorded_at,
        event=event_of(row, row.other),
        subject=subject_of(row, row.other),
        other=row.other,
        amount=row.amount if row.is_credit else -row.amount,
        balance=row.balance_after,
    )
