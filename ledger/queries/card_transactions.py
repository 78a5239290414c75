"""Queries of card transactions: by id, their events, and pages."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Row, and_, bindparam, case, func, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from cardledger.ledger.core.status import Closure, Status
from cardledger.ledger.projections import card_transaction, card_transaction_rows
from cardledger.ledger.projections.event_rows import StoredEvent
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.tenancy import is_of_customer, own
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.card_transactions import CardTransactionResource

_CARD_TRANSACTION: Final = select(
    *tables.card_transactions.columns, tables.customers.c.platform_customer_id
).join(tables.customers, tables.customers.c.id == tables.card_transactions.c.customer_id)
"""The columns that `card_transaction_rows.from_row` reads, in its order."""

_EVENT: Final = tables.card_transaction_events.c
_CONVERSION: Final = tables.conversion_details.c
_EVENTS_BETWEEN: Final = (
    select(
        _EVENT.kind,
        _EVENT.amount,
        _EVENT.unfunded,
        _EVENT.final,
        _EVENT.reason,
        tables.outcomes.c.source,
        tables.outcomes.c.reference,
        _EVENT.occurred_at,
        _EVENT.recorded_at,
        _CONVERSION.merchant_amount,
        _CONVERSION.merchant_currency,
        _CONVERSION.billing_amount,
        _CONVERSION.rate,
        tables.outcomes.c.outcome,
        tables.outcomes.c.reason.label("outcome_reason"),
    )
    .outerjoin_from(
        tables.card_transaction_events,
        tables.outcomes,
        (tables.outcomes.c.message_id == _EVENT.message_id)
        & (tables.outcomes.c.customer_id == _EVENT.customer_id),
    )
    .outerjoin(
        tables.conversion_details,
        (_CONVERSION.card_transaction_id == _EVENT.card_transaction_id)
        & (_CONVERSION.sequence == _EVENT.sequence)
        & (_CONVERSION.customer_id == _EVENT.customer_id),
    )
    .where(
        _EVENT.card_transaction_id == bindparam("id"),
        _EVENT.sequence > bindparam("after"),
        _EVENT.sequence <= bindparam("until"),
    )
    .order_by(_EVENT.sequence)
)
_CLOCK_DIFFERENCE: Final = timedelta(hours=1)
"""Between the id of a card transaction, by the clock of a worker, and its time, by PostgreSQL's.

A worker that is off by more than a moment decides nothing; a batch takes a minute at most.
"""

# A cardholder with more card transactions than the first number is looked for among as many of the
# platform as the second.
_NEAR: Final = ((1_000, 5_000), (50_000, 100_000))

# As many card transactions of a cardholder are sorted where a status or an amount is looked for.
_SORTED: Final = 20_000

_Columns = ReadOnlyColumnCollection[str, Any]

Direction = Literal["DEBIT", "CREDIT"]
"""Whether the account of a card transaction pays or is paid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardTransactionFilters:
    """Conditions on card transactions; None matches every one. Times are inclusive."""

    customer_id: Id | None = None
    platform_customer_id: str | None = None
    card_id: Id | None = None
    account_id: Id | None = None
    account_ids: Collection[Id] | None = None
    direction: Direction | None = None
    status: str | None = None
    token: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    currency: str | None = None
    min_amount: int | None = None  # Of what was authorized, settled, declined or refunded.


async def get(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    card_transaction_id: Id,
    account_ids: Collection[Id] | None = None,
) -> CardTransactionResource | None:
    """Return the platform's card transaction, or None.

    With `account_ids`, only a card transaction of one of these accounts.
    """
    rows = await connection.execute(
        _CARD_TRANSACTION.where(
            tables.card_transactions.c.id == card_transaction_id,
            tables.card_transactions.c.platform_id == platform_id,
            *_matching(
                tables.card_transactions.c,
                platform_id,
                CardTransactionFilters(account_ids=account_ids),
            ),
        )
    )
    row = rows.one_or_none()
    return None if row is None else _render(row)


async def events_between(
    connection: AsyncConnection, *, card_transaction_id: Id, after: int, until: int
) -> list[StoredEvent]:
    """Return the events after the sequence `after`, up to `until`, of a card transaction."""
    rows = await connection.execute(
        _EVENTS_BETWEEN, {"id": card_transaction_id, "after": after, "until": until}
    )
    return [StoredEvent(*row) for row in rows]


async def page(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: CardTransactionFilters,
    wanted: paging.Wanted,
    count_limit: int = paging.COUNT_LIMIT,
    distance: int | None = None,
) -> paging.Page[CardTransactionResource]:
    """Return one page of the platform's card transactions; `count_limit` is that of its total.

    With `distance`, a status or an amount is looked for among so many of the platform's: the page
    may have fewer than wanted, and not be the last (`Page.reached`).
    """
    found: paging.Found | None
    if distance is not None and _has_no_index(filters):
        found = await _among_next(connection, platform_id, filters, wanted, distance)
    else:
        found = await _of_one_cardholder(connection, platform_id, filters, wanted)
    if found is not None and not found.keys and count_limit == 0:
        return paging.without_items(found)
    return await paging.read(
        connection,
        _CARD_TRANSACTION,
        table=tables.card_transactions,
        matching=[
            tables.card_transactions.c.platform_id == platform_id,
            *_matching(tables.card_transactions.c, platform_id, filters),
        ],
        wanted=wanted,
        item=_render,
        count_limit=count_limit,
        found=found,
    )


def _has_no_index(filters: CardTransactionFilters) -> bool:
    """Return whether any number of card transactions may stand between two that match."""
    if filters.status == Status.EXCEPTION:
        return False  # An index has those that owe money.
    return filters.status is not None or filters.min_amount is not None


async def _among_next(
    connection: AsyncConnection,
    platform_id: Id,
    filters: CardTransactionFilters,
    wanted: paging.Wanted,
    distance: int,
) -> paging.Found:
    """Return what is found of a page among the next `distance` card transactions of the platform.

    Those of a cardholder are sorted instead, unless they are many: they may be far from each other.
    """
    columns = tables.card_transactions.c
    of_platform = columns.platform_id == platform_id
    of_cardholder = [*_of_cardholder(columns, platform_id, filters)]
    matching = [of_platform, *_matching(columns, platform_id, filters)]
    if of_cardholder and await _are_few(connection, [of_platform, *of_cardholder]):
        return await paging.sort(
            connection,
            columns.id,
            among=[of_platform, *of_cardholder],
            matching=matching,
            wanted=wanted,
        )
    return await paging.search(
        connection,
        columns.id,
        among=[of_platform, *_made_within(columns, filters)],
        matching=matching,
        wanted=wanted,
        distance=distance,
    )


async def _are_few(
    connection: AsyncConnection, of_cardholder: Sequence[ColumnElement[bool]]
) -> bool:
    """Return whether a cardholder has so few card transactions that they are sorted.

    In the order of the index that begins with the cardholder: for one who has many, PostgreSQL may
    otherwise look through the rows of all cardholders.
    """
    columns = tables.card_transactions.c
    keys = select(columns.id).where(*of_cardholder)
    first = keys.order_by(columns.card_id, columns.issuer_transaction_token).limit(_SORTED + 1)
    counted = await connection.scalar(select(func.count()).select_from(first.subquery()))
    return (counted or 0) <= _SORTED


async def _of_one_cardholder(
    connection: AsyncConnection,
    platform_id: Id,
    filters: CardTransactionFilters,
    wanted: paging.Wanted,
) -> paging.Found | None:
    """Return what is found of a page of a cardholder; None: it is of all cardholders.

    No index has the card transactions of a cardholder in their order: it would cost every decision.
    A few are sorted. Those of a busy cardholder are likely to be among the next ones of the
    platform, which an index has in their order: the more there are, the farther it pays to look.
    Where they are not, all of them are sorted, without their columns, which would take five times
    as long.
    """
    table = tables.card_transactions
    if not [*_of_cardholder(table.c, platform_id, filters)]:
        return None
    of_platform = table.c.platform_id == platform_id
    matching = [of_platform, *_matching(table.c, platform_id, filters)]
    of_time = select(table).where(of_platform, *_made_within(table.c, filters))
    for few, distance in _NEAR:
        keys = await paging.first_of_few(connection, table, matching, wanted, most=few)
        if keys is not None:
            return paging.Found(keys=keys)
        near = paging.in_order(of_time, table.c.id, wanted).limit(distance).subquery("near")
        among_near = select(near.c.id).where(*_matching(near.c, platform_id, filters))
        found = await paging.first(connection, among_near, near.c.id, wanted)
        if len(found) > wanted.limit:
            return paging.Found(keys=found)
    every = select(table.c.id).where(*matching)
    return paging.Found(keys=await paging.first(connection, every, table.c.id, wanted))


def _matching(
    columns: _Columns, platform_id: Id, filters: CardTransactionFilters
) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions of `filters` on the `columns` of card transactions."""
    conditions = {
        columns.card_id: filters.card_id,
        columns.account_id: filters.account_id,
        columns.issuer_transaction_token: filters.token,
        columns.currency: filters.currency,
    }
    yield from (column == value for column, value in conditions.items() if value is not None)
    if filters.status is not None:
        yield columns.status.in_(card_transaction_rows.stored_statuses(filters.status))
    if filters.status == Status.EXCEPTION:
        # Implied by the status: the partial index of exceptions finds the few that match.
        yield columns.debt_since.is_not(None)
        if filters.account_id is not None or filters.account_ids is not None:
            yield columns.debt_id.is_not(None)  # The index of an account's debts.
    if filters.account_ids is not None:
        yield columns.account_id.in_(filters.account_ids)
    if filters.direction is not None:
        is_credit = _pays_account(columns)
        yield is_credit if filters.direction == "CREDIT" else not_(is_credit)
    if filters.created_from is not None:
        yield columns.created_at >= filters.created_from
    if filters.created_to is not None:
        yield columns.created_at <= filters.created_to
    yield from _made_within(columns, filters)
    if filters.min_amount is not None:
        totals = columns.authorized, columns.settled, columns.declined, columns.refunded
        # Readers see it as the authorized amount, unless a purchase has got the credit's token.
        of_credit = case((_pays_account(columns), columns.credit_authorized))
        yield func.greatest(*totals, of_credit) >= filters.min_amount
    yield from _of_cardholder(columns, platform_id, filters)


def _pays_account(columns: _Columns) -> ColumnElement[bool]:
    """Return the condition of a card transaction whose direction is CREDIT.

    That of `CardTransaction.pays_account`.
    """
    return or_(
        and_(columns.authorizations == 0, columns.settlement_count == 0),
        func.coalesce(columns.closed_by, "") == Closure.CREDITED.value,
    )


def _made_within(
    columns: _Columns, filters: CardTransactionFilters
) -> Iterator[ColumnElement[bool]]:
    """Yield conditions on the ids, which are in the order of their creation."""
    return paging.made_within(
        columns.id, filters.created_from, filters.created_to, difference=_CLOCK_DIFFERENCE
    )


def _of_cardholder(
    columns: _Columns, platform_id: Id, filters: CardTransactionFilters
) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions on the cardholder, who never changes.

    No index begins with the card, the account or `platform_customer_id`; one begins with the
    cardholder.
    """
    if filters.customer_id is not None:
        yield columns.customer_id == own(
            tables.customers, filters.customer_id, platform_id=platform_id
        )
    if filters.card_id is not None:
        yield columns.customer_id == own(
            tables.cards, filters.card_id, platform_id=platform_id, column="customer_id"
        )
    if filters.account_id is not None:
        yield columns.customer_id == own(
            tables.internal_accounts,
            filters.account_id,
            platform_id=platform_id,
            column="customer_id",
        )
    if filters.platform_customer_id is not None:
        yield is_of_customer(
            columns.customer_id, filters.platform_customer_id, platform_id=platform_id
        )


def _render(row: Row[*tuple[Any, ...]]) -> CardTransactionResource:
    return card_transaction.render(card_transaction_rows.from_row(row))
