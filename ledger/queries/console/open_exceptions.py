"""Open exceptions of a platform: what is due, since which event, and what would pay it.

An account pays its debts in the order in which they arose, each whole, and never skips one: what
pays a debt pays all those before it in the queue of its account.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BindParameter, bindparam, text
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.projections import card_transaction
from cardledger.ledger.projections.card_transaction_rows import COLUMNS, from_row
from cardledger.ledger.storage.places import Place
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource
from cardledger.schema.wire.common import CurrencyAmount, money

QUEUE_LIMIT: Final = 200
"""The debts before another one that are counted and added up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenException:
    """A card transaction for which money is due, and its place in the queue of its account.

    `event` is what the network sent, rather than the pull that it led to; `source` and `reference`
    are None when a timer or the ledger itself sent the event. `ahead_count` debts of `ahead_amount`
    are paid first; both are None when these are more than `QUEUE_LIMIT`. `due` is what the account
    is asked for: an open pull and refund reversals that are unpaid, each in one amount. Of it, the
    network has taken what is `owed`; the rest is for a hold. Amounts are minor units of `currency`.
    `account_version` is the number of entries on the account.
    """

    resource: CardTransactionResource
    since: datetime
    event: str | None
    source: str | None
    reference: str | None
    ahead_count: int | None
    ahead_amount: int | None
    due: int
    available: int
    account_version: int
    account_status: str

    @property
    def currency(self) -> str:
        """The currency of the card transaction and of its account."""
        return self.resource.owed_amount.currency.code

    @property
    def owed(self) -> int:
        """Of `due`, what the network has taken, in minor units."""
        return self.resource.owed_amount.amount

    @property
    def position(self) -> int | None:
        """The position in the queue of the account, from 1; None: behind `QUEUE_LIMIT`."""
        return None if self.ahead_count is None else self.ahead_count + 1

    @property
    def missing(self) -> CurrencyAmount | None:
        """The credit to the account that pays it and all before it; None: it is not known."""
        if self.ahead_amount is None:
            return None
        return money(max(self.ahead_amount + self.due - self.available, 0), self.currency)

    @property
    def place(self) -> Place:
        """The place in the list."""
        return Place(at=self.since, id=self.resource.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionFilters:
    """Conditions on exceptions; None matches every one."""

    account_id: Id | None = None
    customer_id: Id | None = None
    currency: str | None = None
    id: Id | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of the list; `last` is None on the last page."""

    items: Sequence[OpenException]
    last: Place | None


_COLUMNS: Final = ", ".join(f"t.{column}" for column in COLUMNS)

# The events of a purchase before the pulls that they led to.
_PAGE: Final = f"""
    SELECT e.kind, o.source, o.reference, q.ahead_count, q.ahead_amount, a.balance, a.version,
        a.status, {_COLUMNS}, u.platform_customer_id
    FROM (
        SELECT * FROM card_transactions
        WHERE platform_id = :platform_id AND debt_since IS NOT NULL AND status = 'EXCEPTION'
            {{conditions}}
        ORDER BY debt_since, id LIMIT :limit
    ) t
    JOIN customers u ON u.id = t.customer_id
    JOIN internal_accounts a ON a.id = t.account_id AND a.customer_id = t.customer_id
    LEFT JOIN LATERAL (
        SELECT kind FROM card_transaction_events
        WHERE card_transaction_id = t.id AND message_id = t.debt_id
        ORDER BY starts_with(kind, 'PULL_'), sequence LIMIT 1
    ) e ON true
    LEFT JOIN outcomes o ON o.message_id = t.debt_id AND o.customer_id = t.customer_id
    CROSS JOIN LATERAL (
        SELECT count(*) AS ahead_count, coalesce(sum(d.due), 0) AS ahead_amount
        FROM (
            SELECT open_pull::numeric + unpaid AS due FROM card_transactions
            WHERE account_id = t.account_id AND debt_id IS NOT NULL
                AND (debt_since, debt_id) < (t.debt_since, t.debt_id)
            LIMIT {QUEUE_LIMIT + 1}
        ) d
    ) q
    ORDER BY t.debt_since, t.id
"""


async def page(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: ExceptionFilters,
    after: Place | None = None,
    limit: int,
) -> Page:
    """Return one page of the platform's open exceptions, the oldest first."""
    conditions: list[str] = []
    values: list[BindParameter[Any]] = [
        _id("platform_id", platform_id),
        bindparam("limit", limit + 1),
    ]
    if after is not None:
        conditions.append("(debt_since, id) > (:since, :after)")
        values += [bindparam("since", after.at, TIMESTAMP(timezone=True)), _id("after", after.id)]
    if filters.currency is not None:
        conditions.append("currency = :currency")
        values.append(bindparam("currency", filters.currency))
    if filters.id is not None:
        conditions.append("id = :id")
        values.append(_id("id", filters.id))
    if filters.account_id is not None:
        conditions.append("debt_id IS NOT NULL")  # The index of an account's debts.
    for column, table, key in (
        ("account_id", "internal_accounts", filters.account_id),
        ("customer_id", "customers", filters.customer_id),
    ):
        if key is not None:
            # Null for an id of another platform, of which no row is read then.
            own = f"SELECT id FROM {table} WHERE id = :{column} AND platform_id = :platform_id"
            conditions.append(f"{column} = ({own})")
            values.append(_id(column, key))
    statement = _PAGE.format(conditions="".join(f" AND {each}" for each in conditions))
    rows = (await connection.execute(text(statement).bindparams(*values))).all()
    items = [_exception(row) for row in rows[:limit]]
    return Page(items=items, last=items[-1].place if len(rows) > limit else None)


def _id(name: str, key: Id) -> BindParameter[Any]:
    return bindparam(name, key, tables.card_transactions.c.id.type)


def _exception(row: Sequence[Any]) -> OpenException:
    kind, source, reference, ahead_count, ahead_amount, balance, version, status, *columns = row
    roll_up = from_row(columns)
    assert roll_up.debt_since is not None, "the statement selects debts"
    is_long = ahead_count > QUEUE_LIMIT
    return OpenException(
        resource=card_transaction.render(roll_up),
        since=roll_up.debt_since,
        event=kind,
        source=source,
        reference=reference,
        ahead_count=None if is_long else ahead_count,
        ahead_amount=None if is_long else int(ahead_amount),
        due=roll_up.state.open_pull + roll_up.state.unpaid,
        available=balance,
        account_version=version,
        account_status=status,
    )
