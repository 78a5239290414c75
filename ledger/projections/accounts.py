"""Internal accounts: their resource, the queries that read them, and opening new accounts."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Protocol, cast

from pydantic import InstanceOf, TypeAdapter
from sqlalchemy import Row, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage import paging
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.tenancy import own
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import CRYPTO, amount, public_id, rfc3339
from cardledger.schema.wire.customers.accounts import InternalAccountResource

ACTIVE: Final = "ACTIVE"
"""The only status in which an account pays what is asked of it, or may fund a card.

What has happened at the network is recorded on an account of any status, and paid from its balance.
"""

CLOSED: Final = "CLOSED"
"""The status of an account whose customer was deleted: no payment leaves it or arrives any more."""

ACCOUNT_LIMIT: Final = 100
"""The most accounts a customer may have: a batch locks all of them."""

_ACCOUNT: Final = select(
    tables.internal_accounts.c.id,
    tables.internal_accounts.c.customer_id,
    tables.internal_accounts.c.platform_id,
    tables.internal_accounts.c.type,
    tables.internal_accounts.c.status,
    tables.internal_accounts.c.currency,
    tables.internal_accounts.c.balance,
    tables.internal_accounts.c.held,
    tables.internal_accounts.c.owed,
    tables.internal_accounts.c.pending,
    tables.internal_accounts.c.version,
    tables.internal_accounts.c.created_at,
    tables.internal_accounts.c.updated_at,
)


class TooManyAccountsError(Exception):
    """The customer already has `ACCOUNT_LIMIT` accounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFilters:
    """Conditions on internal accounts; None matches every account."""

    currency: str | None = None
    customer_id: Id | None = None
    type: str | None = None
    ids: Collection[Id] | None = None


class InternalAccount(Protocol):
    """The columns behind the resource: of a row of the table, or of a stored snapshot."""

    @property
    def id(self) -> Id: ...
    @property
    def customer_id(self) -> Id: ...
    @property
    def platform_id(self) -> Id: ...
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
    def version(self) -> int: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def updated_at(self) -> datetime: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """An account as it was when its webhook was recorded."""

    id: InstanceOf[Id]
    customer_id: InstanceOf[Id]
    platform_id: InstanceOf[Id]
    type: str
    status: str
    currency: str
    balance: int
    held: int
    owed: int
    pending: int
    version: int
    created_at: datetime
    updated_at: datetime


_SNAPSHOT: Final = TypeAdapter(_Snapshot)

SNAPSHOT_COLUMNS: Final = tuple(
    field.name
    for field in fields(_Snapshot)
    if field.name not in {"id", "customer_id", "platform_id", "version"}
)
"""The columns that a webhook keeps as JSON; the ids and the version are columns of the outbox."""


def render(account: InternalAccount) -> InternalAccountResource:
    """Return `account` as a resource."""
    return InternalAccountResource.model_validate(_wire(account))


def wire(
    snapshot: Mapping[str, Any],
    *,
    key: Id,
    customer_id: Id,
    platform_id: Id,
    version: int | None,
) -> dict[str, Any]:
    """Return the JSON of account `key` from its `SNAPSHOT_COLUMNS`.

    Raises: ValueError for a snapshot that is not one of an account.
    """
    owner = {"customer_id": customer_id, "platform_id": platform_id}
    columns = {**snapshot, **owner, "id": key, "version": version}
    return _wire(_SNAPSHOT.validate_python(columns))


def _wire(account: InternalAccount) -> dict[str, Any]:
    currency = account.currency
    # A platform, which owns accounts by its own id, is no customer.
    is_platforms = account.customer_id == account.platform_id
    owner = {} if is_platforms else {"customerId": public_id("Customer", account.customer_id)}
    return {
        "id": public_id("InternalAccount", account.id),
        **owner,
        "type": account.type,
        "status": account.status,
        "balance": amount(account.balance, currency),
        # A pull lowers the balance at once, and the total when the pull is confirmed.
        "totalBalance": amount(account.balance + account.pending, currency),
        "heldAmount": amount(account.held, currency),
        "owedAmount": amount(account.owed, currency),
        "fundingPaymentInstructions": [],
        "sequence": account.version,
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


async def platform_accounts(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    currency: str | None = None,
    type: str | None = None,  # noqa: A002 - the name of the filter
) -> list[InternalAccountResource]:
    """Return the platform's own accounts that match, oldest first."""
    columns = tables.internal_accounts.c
    conditions = {columns.currency: currency, columns.type: type}
    rows = await connection.execute(
        _ACCOUNT.where(
            columns.customer_id == platform_id,
            columns.platform_id == platform_id,
            *(column == value for column, value in conditions.items() if value is not None),
        ).order_by(columns.id)
    )
    return [_render(row) for row in rows]


async def open_platform_accounts(
    connection: AsyncConnection, *, platform_id: Id, currencies: Iterable[str], at: datetime
) -> None:
    """Open an account of the platform itself in each of `currencies` in which it has none.

    An account of a platform is owned by the platform's id; only the platform's own queue changes
    it (docs/decisions/0079-accounts-of-platforms.md).
    """
    missing = await _without_account(connection, platform_id, currencies)
    if not missing:
        return
    # Of two callers the second waits, and finds the accounts of the first.
    await connection.execute(
        select(tables.platforms.c.id)
        .where(tables.platforms.c.id == platform_id)
        .with_for_update(key_share=True)
    )
    missing = await _without_account(connection, platform_id, missing)
    if missing:
        await open_all(
            connection,
            customer_id=platform_id,
            platform_id=platform_id,
            currencies=missing,
            at=at,
        )


async def _without_account(
    connection: AsyncConnection, platform_id: Id, currencies: Iterable[str]
) -> list[str]:
    columns = tables.internal_accounts.c
    rows = await connection.scalars(
        select(columns.currency).where(
            columns.customer_id == platform_id, columns.platform_id == platform_id
        )
    )
    there = set(rows)
    return sorted(set(currencies) - there)


async def open_one(
    connection: AsyncConnection,
    *,
    customer_id: Id,
    platform_id: Id,
    currency: str,
    at: datetime,
) -> InternalAccountResource:
    """Open one more account of a customer, whose row the caller has locked.

    Raises: TooManyAccountsError.
    """
    columns = tables.internal_accounts.c
    account_count = await connection.scalar(
        select(func.count())
        .select_from(tables.internal_accounts)
        .where(columns.customer_id == customer_id)
    )
    if (account_count or 0) >= ACCOUNT_LIMIT:
        raise TooManyAccountsError
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
    """Return the platform's account `account_id`, or None when the platform does not have it."""
    rows = await connection.execute(
        _ACCOUNT.where(
            tables.internal_accounts.c.id == account_id,
            tables.internal_accounts.c.platform_id == platform_id,
        )
    )
    row = rows.one_or_none()
    return None if row is None else _render(row)


async def page(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: AccountFilters,
    wanted: paging.Wanted,
    count_limit: int = paging.COUNT_LIMIT,
) -> paging.Page[InternalAccountResource]:
    """Return one page of the platform's internal accounts; `count_limit` is that of its total."""
    columns = tables.internal_accounts.c
    conditions = {columns.currency: filters.currency, columns.type: filters.type}
    # Those of the platform itself are another list.
    matching = [columns.platform_id == platform_id, columns.customer_id != platform_id]
    matching += [column == value for column, value in conditions.items() if value is not None]
    if filters.customer_id is not None:
        customer = own(tables.customers, filters.customer_id, platform_id=platform_id)
        matching.append(columns.customer_id == customer)
    if filters.ids is not None:
        matching.append(columns.id.in_(filters.ids))
    return await paging.read(
        connection,
        _ACCOUNT,
        table=tables.internal_accounts,
        matching=matching,
        wanted=wanted,
        item=_render,
        count_limit=count_limit,
    )


def _render(row: Row[*tuple[Any, ...]]) -> InternalAccountResource:
    return render(cast("InternalAccount", row))
