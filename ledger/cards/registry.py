"""Cards as readers see them: by id, and in pages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Uuid, select, type_coerce
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage import paging
from cardledger.ledger.storage.tenancy import own
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.cards.cards import CardResource

COLUMNS: Final = [column for column in tables.cards.columns if column.name != "activate_at"]
"""What `render` reads, the key first."""

CLOSED: Final = "CLOSED"

_SOURCES: Final = type_coerce(tables.cards.c.funding_sources, postgresql.ARRAY(Uuid))
"""With PostgreSQL's array type, which has the operator that `contains` needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFilters:
    """Filters of a list of cards; None matches all. `account_id` is any funding source."""

    cardholder_id: Id | None = None
    account_id: Id | None = None
    platform_card_id: str | None = None
    state: str | None = None


async def get(connection: AsyncConnection, *, platform_id: Id, card_id: Id) -> CardResource | None:
    """Return the platform's card `card_id`, or None when it has no such card."""
    rows = await connection.execute(
        select(*COLUMNS).where(
            tables.cards.c.id == card_id, tables.cards.c.platform_id == platform_id
        )
    )
    row = rows.one_or_none()
    return None if row is None else render(row._asdict())


async def page(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: CardFilters,
    wanted: paging.Wanted,
    count_limit: int = paging.COUNT_LIMIT,
) -> paging.Page[CardResource]:
    """Return one page of the platform's cards; `count_limit` is that of its total."""
    columns = tables.cards.c
    equal = {
        columns.platform_card_id: filters.platform_card_id,
        columns.state: filters.state,
    }
    matching = [
        columns.platform_id == platform_id,
        *(column == value for column, value in equal.items() if value is not None),
    ]
    if filters.cardholder_id is not None:
        cardholder = own(tables.customers, filters.cardholder_id, platform_id=platform_id)
        matching.append(columns.customer_id == cardholder)
    if filters.account_id is not None:
        account = own(tables.internal_accounts, filters.account_id, platform_id=platform_id)
        matching += [
            _SOURCES.contains(postgresql.array([account])),
            columns.state != CLOSED,  # A closed card has no funding source.
        ]
    return await paging.read(
        connection,
        select(*COLUMNS),
        table=tables.cards,
        matching=matching,
        wanted=wanted,
        item=lambda row: render(row._asdict()),
        count_limit=count_limit,
    )


def render(row: Mapping[str, Any]) -> CardResource:
    """Return a row of `cards` as a resource; a closed card has no funding source."""
    return CardResource(
        id=row["id"],
        cardholder_id=row["customer_id"],
        platform_card_id=row["platform_card_id"],
        state=row["state"],
        state_reason=row["state_reason"],
        brand=row["brand"],
        form=row["form"],
        last4=row["last4"],
        exp_month=row["exp_month"],
        exp_year=row["exp_year"],
        funding_sources=[] if row["state"] == CLOSED else row["funding_sources"],
        max_spend_per_transaction=row["max_spend_per_transaction"],
        currency=row["currency"],
        processor_ref=row["processor_ref"],
        issuer_ref=row["issuer_ref"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
