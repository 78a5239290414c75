"""Card transactions as readers ask for them: one, or a page."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, ScalarSelect, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ledger import paging, roll_up, roll_up_rows
from schema import tables
from schema.wire.card_transactions import CardTransactionResource

_CARD_TRANSACTION: Final = select(
    *tables.card_transactions.columns, tables.customers.c.platform_customer_id
).join(tables.customers, tables.customers.c.id == tables.card_transactions.c.customer_id)
"""What `roll_up_rows.from_row` reads, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What card transactions have to match; None matches all."""

    customer_id: UUID | None = None
    card_id: UUID | None = None
    status: str | None = None


async def get(
    connection: AsyncConnection, *, platform_id: UUID, card_transaction_id: UUID
) -> CardTransactionResource | None:
    """Return the platform's card transaction, or None when it has no such."""
    rows = await connection.execute(
        _CARD_TRANSACTION.where(
            tables.card_transactions.c.id == card_transaction_id,
            tables.card_transactions.c.platform_id == platform_id,
        )
    )
    row = rows.one_or_none()
    return None if row is None else _render(row)


async def page(
    connection: AsyncConnection, *, platform_id: UUID, filters: Filters, wanted: paging.Wanted
) -> paging.Page[CardTransactionResource]:
    """Return one page of the platform's card transactions."""
    columns = tables.card_transactions.c
    asked = {
        columns.customer_id: filters.customer_id,
        columns.card_id: filters.card_id,
        columns.status: filters.status,
    }
    # No index begins with the card; one has it after its cardholder, who never changes.
    of_cardholder = [columns.customer_id == _cardholder(filters.card_id)] if filters.card_id else []
    return await paging.read(
        connection,
        _CARD_TRANSACTION,
        table=tables.card_transactions,
        matching=[
            columns.platform_id == platform_id,
            *of_cardholder,
            *(column == value for column, value in asked.items() if value is not None),
        ],
        wanted=wanted,
        item=_render,
    )


def _cardholder(card_id: UUID) -> ScalarSelect[UUID]:
    cards = tables.cards.c
    return select(cards.customer_id).where(cards.id == card_id).scalar_subquery()


def _render(row: Row[*tuple[Any, ...]]) -> CardTransactionResource:
    return roll_up.render(roll_up_rows.from_row(row))
