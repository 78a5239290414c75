"""Internal accounts: reading them, and opening them with their customer."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Protocol, cast

from pydantic import InstanceOf, TypeAdapter
from sqlalchemy import Row, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage import paging
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import CRYPTO, amount, public_id, rfc3339
from cardledger.schema.wire.customers.accounts import InternalAccountResource

ACTIVE: Final = "ACTIVE"
"""The only status in which an account pays, or may fund a card."""

MOST: Final = 100
"""Accounts that a customer may have: a batch locks them all."""

_ACCOUNT: Final = select(
    tables.internal_accounts.c.id,
    tables.internal_accounts.c.customer_id,
    tables.internal_accounts.c.type,
    tables.internal_accounts.c.status,
    tables.internal_accounts.c.currency,
    tables.internal_accounts.c.balance,
    tables.internal_accounts.c.held,
    tables.internal_accounts.c.owed,
    tables.internal_accounts.c.pending,
    tables.internal_accounts.c.created_at,
    tables.internal_accounts.c.updated_at,
)


class TooManyError(Exception):
    """The customer has as many accounts as one may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What accounts have to match; None matches all."""

    currency: str | None = None
    customer_id: Id | None = None
    type: str | None = None
    ids: Collection[Id] | None = None


class Account(Protocol):
    """What readers see of an account: a row of the table, or what was kept of one."""

    @property
    def id(self) -> Id: ...
    @property
    def customer_id(self) -> Id: ...
    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def currency(self) -> str: ...
    @property
    def balance(self) -> int: ...
    @property
    def held(self) -> int: ...
    @property
    def owed(self) -> int: ...
    @property
    def pending(self) -> int: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def updated_at(self) -> datetime: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """An account as it was when somebody was to be told of it."""

    id: InstanceOf[Id]
    customer_id: InstanceOf[Id]
    type: str
    status: str
    currency: str
    balance: int
    held: int
    owed: int
    pending: int
    created_at: datetime
    updated_at: datetime


_KEPT: Final = TypeAdapter(_Kept)

KEPT: Final = tuple(
    field.name for field in fields(_Kept) if field.name not in {"id", "customer_id"}
)
"""The columns, all but the ids, that are kept as JSON; `wire` makes a resource of them later."""


def render(account: Account) -> InternalAccountResource:
    """Return `account` as a resource."""
    return InternalAccountResource.model_validate(_wire(account))


def wire(kept: Mapping[str, Any], *, key: Id, customer_id: Id) -> dict[str, Any]:
    """Return account `key`, of which `KEPT` were kept, as every reader sees it: its JSON.

    Raises: ValueError for what no account leaves.
    """
    return _wire(_KEPT.validate_python({**kept, "id": key, "customer_id": customer_id}))


def _wire(account: Account) -> dict[str, Any]:
    currency = account.currency
    return {
        "id": public_id("InternalAccount", account.id),
        "customerId": public_id("Customer", account.customer_id),
        "type": account.type,
        "status": account.status,
        "balance": amount(account.balance, currency),
        # What was pulled leaves the total when the pull is confirmed, the balance at once.
        "totalBalance": amount(account.balance + account.pending, currency),
        "heldAmount": amount(account.held, currency),
        "owedAmount": amount(account.owed, currency),
        "fundingPaymentInstructions": [],
        "createdAt": rfc3339(account.created_at),
        "updatedAt": rfc3339(account.updated_at),
    }


async def open_all(
    connection: AsyncConnection,
    *,
    customer_id: Id,
    platform_id: Id,
    currencies: Iterable[str],
    at: datetime,
) -> None:
    """Open one active internal account per currency for a new customer."""
    await connection.execute(
        tables.internal_accounts.insert(),
        [_new(customer_id, platform_id, currency, at) for currency in currencies],
    )


async def open_one(
    connection: AsyncConnection,
    *,
    customer_id: Id,
    platform_id: Id,
    currency: str,
    at: datetime,
) -> InternalAccountResource:
    """Open one more account of a customer, whom the caller has locked.

    Raises: TooManyError.
    """
    columns = tables.internal_accounts.c
    there = await connection.scalar(
        select(func.count())
        .select_from(tables.internal_accounts)
        .where(columns.customer_id == customer_id)
    )
    if (there or 0) >= MOST:
        raise TooManyError
    row = _new(customer_id, platform_id, currency, at)
    await connection.execute(tables.internal_accounts.insert().values(**row))
    opened = await get(connection, platform_id=platform_id, account_id=row["id"])
    assert opened is not None
    return opened


def _new(customer_id: Id, platform_id: Id, currency: str, at: datetime) -> dict[str, Any]:
    return {
        "id": new_id(),
        "customer_id": customer_id,
        "platform_id": platform_id,
        "currency": currency,
        "type": "INTERNAL_CRYPTO" if currency in CRYPTO else "INTERNAL_FIAT",
        "status": ACTIVE,
        "created_at": at,
        "updated_at": at,
    }


async def get(
    connection: AsyncConnection, *, platform_id: Id, account_id: Id
) -> InternalAccountResource | None:
    """Return the platform's account `account_id`, or None when it has no such account."""
    rows = await connection.execute(
        _ACCOUNT.where(
            tables.internal_accounts.c.id == account_id,
            tables.internal_accounts.c.platform_id == platform_id,
        )
    )
    row = rows.one_or_none()
    return None if row is None else _render(row)


async def page(
    connection: AsyncConnection, *, platform_id: Id, filters: Filters, wanted: paging.Wanted
) -> paging.Page[InternalAccountResource]:
    """Return one page of the platform's internal accounts."""
    columns = tables.internal_accounts.c
    asked = {
        columns.currency: filters.currency,
        columns.customer_id: filters.customer_id,
        columns.type: filters.type,
    }
    return await paging.read(
        connection,
        _ACCOUNT,
        table=tables.internal_accounts,
        matching=[
            columns.platform_id == platform_id,
            *(column == value for column, value in asked.items() if value is not None),
            *([] if filters.ids is None else [columns.id.in_(filters.ids)]),
        ],
        wanted=wanted,
        item=_render,
    )


def _render(row: Row[*tuple[Any, ...]]) -> InternalAccountResource:
    return render(cast("Account", row))
