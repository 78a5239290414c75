"""Customers: who holds cards, and whether they may."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Text, select, type_coerce
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from ledger import accounts, paging, platforms
from ledger.ids import new_id
from schema import tables
from schema.wire.customers import CustomerResource, KycStatus

UMA_DOMAIN: Final = "uma.cardledger.example"
"""Where generated UMA addresses live."""

_KYC_BY_SUFFIX: Final[Mapping[str, KycStatus]] = {
    "001": "PENDING",
    "002": "REJECTED",
    "003": "UNVERIFIED",
}
"""What the last three characters of an individual's full name ask of the sandbox."""

_CUSTOMER: Final = select(
    *[column for column in tables.customers.columns if column.name != "platform_id"]
)


_CURRENCIES: Final = type_coerce(tables.customers.c.currencies, postgresql.ARRAY(Text))
"""As PostgreSQL knows arrays: only so can be asked what one contains."""


class AlreadyExistsError(Exception):
    """Another active customer has this `field` already."""

    def __init__(self, field: str) -> None:
        super().__init__(f"another customer has this {field}")
        self.field = field


class UnsupportedCurrencyError(Exception):
    """The platform's books do not have `currency`; they have `supported`."""

    def __init__(self, currency: str, supported: tuple[str, ...]) -> None:
        super().__init__(f"{currency} is not among {', '.join(supported)}")
        self.currency = currency
        self.supported = supported


class DeletedError(Exception):
    """The customer is deleted; nothing about it changes any more."""


class OtherTypeError(Exception):
    """The customer is of another type than the change is for; a type never changes."""

    def __init__(self, customer_type: str) -> None:
        super().__init__(f"the customer is of type {customer_type}, which never changes")


class InUseError(Exception):
    """The customer cannot be deleted: something would be out of reach; `reason` says what."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class _Applicant:
    platform_customer_id: str | None = None
    uma_address: str | None = None
    region: str | None = None
    currencies: tuple[str, ...] | None = None
    email: str | None = None
    phone_number: str | None = None
    address: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Individual(_Applicant):
    """A person who becomes a customer; what is None is made up or left open."""

    full_name: str | None = None
    birth_date: date | None = None
    nationality: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Business(_Applicant):
    """A company that becomes a customer; what is None is made up or left open."""

    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What customers have to match; None matches all, and times are included."""

    platform_customer_id: str | None = None
    customer_type: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    updated_from: datetime | None = None
    updated_to: datetime | None = None
    region: str | None = None
    currency: str | None = None
    uma_address: str | None = None
    with_deleted: bool = False


def initial_kyc_status(
    full_name: str | None, *, regulated: bool, is_sandbox: bool = True
) -> KycStatus:
    """Return how a new individual stands: in the sandbox, the end of the name decides."""
    if regulated:
        return "APPROVED"  # The platform has done the work, and answers for it.
    if not is_sandbox:
        return "UNVERIFIED"  # Nobody has looked at them yet.
    return _KYC_BY_SUFFIX.get((full_name or "")[-3:], "APPROVED")


async def create(
    connection: AsyncConnection,
    *,
    platform_id: UUID,
    person: Individual | Business,
    at: datetime,
    is_sandbox: bool = True,
) -> CustomerResource:
    """Make `person` a customer, with one internal account per currency.

    Raises: UnsupportedCurrencyError; AlreadyExistsError, after which the database transaction
    can only be rolled back.
    """
    currencies = await _supported(connection, platform_id, person.currencies)
    key = new_id()
    await _insert(
        connection,
        {
            "id": key,
            "platform_id": platform_id,
            "platform_customer_id": person.platform_customer_id or str(new_id()),
            "uma_address": person.uma_address or f"${key.hex}@{UMA_DOMAIN}",
            "region": person.region,
            "currencies": list(currencies),
            "email": person.email,
            "phone_number": person.phone_number,
            "address": person.address,
            "is_deleted": False,
            "created_at": at,
            "updated_at": at,
            **_particulars(person, is_sandbox=is_sandbox),
        },
    )
    await accounts.open_all(
        connection, customer_id=key, platform_id=platform_id, currencies=currencies, at=at
    )
    created = await get(connection, platform_id=platform_id, customer_id=key)
    assert created is not None
    return created


def _particulars(person: Individual | Business, *, is_sandbox: bool) -> dict[str, Any]:
    if isinstance(person, Business):
        return {
            "customer_type": "BUSINESS",
            "kyc_status": "UNVERIFIED",  # In the sandbox, too: a business is verified on request.
            "business_info": dict(person.info),
        }
    return {
        "customer_type": "INDIVIDUAL",
        # No platform is a regulated institution yet.
        "kyc_status": initial_kyc_status(person.full_name, regulated=False, is_sandbox=is_sandbox),
        "full_name": person.full_name,
        "birth_date": person.birth_date,
        "nationality": person.nationality,
    }


async def get(
    connection: AsyncConnection, *, platform_id: UUID, customer_id: UUID
) -> CustomerResource | None:
    """Return the platform's customer `customer_id`, or None when it has no such customer."""
    rows = await connection.execute(
        _CUSTOMER.where(
            tables.customers.c.id == customer_id, tables.customers.c.platform_id == platform_id
        )
    )
    row = rows.one_or_none()
    return None if row is None else _render(row)


async def page(
    connection: AsyncConnection, *, platform_id: UUID, filters: Filters, wanted: paging.Wanted
) -> paging.Page[CustomerResource]:
    """Return one page of the platform's customers."""
    columns = tables.customers.c
    asked = {
        columns.platform_customer_id: filters.platform_customer_id,
        columns.customer_type: filters.customer_type,
        columns.region: filters.region,
        columns.uma_address: filters.uma_address,
    }
    since = {columns.created_at: filters.created_from, columns.updated_at: filters.updated_from}
    until = {columns.created_at: filters.created_to, columns.updated_at: filters.updated_to}
    matching: list[ColumnElement[bool]] = [columns.platform_id == platform_id]
    matching += [column == value for column, value in asked.items() if value is not None]
    matching += [column >= time for column, time in since.items() if time is not None]
    matching += [column <= time for column, time in until.items() if time is not None]
    if filters.currency is not None:
        matching.append(_CURRENCIES.contains([filters.currency]))
    if not filters.with_deleted:
        matching.append(~columns.is_deleted)
    return await paging.read(
        connection,
        _CUSTOMER,
        table=tables.customers,
        matching=matching,
        wanted=wanted,
        item=_render,
    )


async def change(  # noqa: PLR0913 - whose, which, and what
    connection: AsyncConnection,
    *,
    platform_id: UUID,
    customer_id: UUID,
    customer_type: str,
    changes: Mapping[str, Any],
    at: datetime,
) -> CustomerResource | None:
    """Change columns of a customer; None when the platform has no such customer.

    A currency that comes in gets an account, one that goes keeps its account: there may be money
    on it. What `business_info` does not name stays, and None in it takes away.
    Raises: DeletedError, OtherTypeError, UnsupportedCurrencyError; AlreadyExistsError, after which
    the database transaction can only be rolled back.
    """
    before = await _locked(connection, platform_id, customer_id)
    if before is None:
        return None
    if before.customer_type != customer_type:
        raise OtherTypeError(before.customer_type)
    values = {**changes, "updated_at": at}
    if "business_info" in changes:
        merged = {**before.business_info, **changes["business_info"]}
        values["business_info"] = {name: said for name, said in merged.items() if said is not None}
    if "currencies" in changes:
        await _supported(connection, platform_id, tuple(changes["currencies"]))
        await _open_missing(connection, platform_id, customer_id, changes["currencies"], at)
    with _uniqueness():
        await connection.execute(
            tables.customers.update().where(tables.customers.c.id == customer_id).values(**values)
        )
    return await get(connection, platform_id=platform_id, customer_id=customer_id)


async def delete(
    connection: AsyncConnection, *, platform_id: UUID, customer_id: UUID, at: datetime
) -> CustomerResource | None:
    """Delete a customer for the platform and close its accounts; the books stay.

    None when the platform has no such customer.
    Raises: DeletedError; InUseError while it has a card that is not closed, or money.
    """
    before = await _locked(connection, platform_id, customer_id)
    if before is None:
        return None
    await _check_unused(connection, customer_id)
    own = tables.internal_accounts.c.customer_id == customer_id
    await connection.execute(
        tables.internal_accounts.update().where(own).values(status="CLOSED", updated_at=at)
    )
    await connection.execute(
        tables.customers.update()
        .where(tables.customers.c.id == customer_id)
        .values(is_deleted=True, updated_at=at)
    )
    return await get(connection, platform_id=platform_id, customer_id=customer_id)


async def _check_unused(connection: AsyncConnection, customer_id: UUID) -> None:
    card, account = tables.cards.c, tables.internal_accounts.c
    # Whoever issues a card locks the customer as well, so none can come in now.
    open_card = await connection.scalar(
        select(card.id).where(card.customer_id == customer_id, card.state != "CLOSED").limit(1)
    )
    if open_card is not None:
        raise InUseError("OPEN_CARDS", "the customer has a card that is not CLOSED")
    # In the order of their ids, as the engine locks them.
    rows = await connection.execute(
        select(account.currency, account.balance, account.held, account.owed, account.pending)
        .where(account.customer_id == customer_id)
        .order_by(account.id)
        .with_for_update()
    )
    for row in rows.all():
        if any((row.balance, row.held, row.owed, row.pending)):
            message = f"the customer's {row.currency} account has money, or owes some"
            raise InUseError("OPEN_BALANCE", message)


async def _locked(
    connection: AsyncConnection, platform_id: UUID, customer_id: UUID
) -> Row[*tuple[Any, ...]] | None:
    """Return the customer and let nobody else change it until the end; None: there is none.

    Raises: DeletedError.
    """
    columns = tables.customers.c
    rows = await connection.execute(
        select(columns.customer_type, columns.business_info, columns.is_deleted)
        .where(columns.id == customer_id, columns.platform_id == platform_id)
        .with_for_update()
    )
    row = rows.one_or_none()
    if row is not None and row.is_deleted:
        raise DeletedError("the customer is deleted")
    return row


async def _supported(
    connection: AsyncConnection, platform_id: UUID, wanted: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return `wanted`, or all that the platform has when nothing is wanted in particular.

    Raises: UnsupportedCurrencyError.
    """
    has = (await platforms.get(connection, platform_id)).supported_currencies
    for currency in wanted or ():
        if currency not in has:
            raise UnsupportedCurrencyError(currency, has)
    return wanted or has


async def _open_missing(
    connection: AsyncConnection,
    platform_id: UUID,
    customer_id: UUID,
    currencies: Sequence[str],
    at: datetime,
) -> None:
    account = tables.internal_accounts.c
    there = await connection.scalars(
        select(account.currency).where(account.customer_id == customer_id)
    )
    has = set(there)
    missing = [currency for currency in currencies if currency not in has]
    if missing:
        await accounts.open_all(
            connection,
            customer_id=customer_id,
            platform_id=platform_id,
            currencies=missing,
            at=at,
        )


_FIELD_OF_KEY: Final = {
    "customers_platform_customer_id_key": "platformCustomerId",
    "customers_uma_address_key": "umaAddress",
}


async def _insert(connection: AsyncConnection, row: Mapping[str, Any]) -> None:
    with _uniqueness():
        await connection.execute(tables.customers.insert().values(**row))


@contextmanager
def _uniqueness() -> Iterator[None]:
    """Say which field another customer has already."""
    try:
        yield
    except IntegrityError as error:
        constraint = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
        field = _FIELD_OF_KEY.get(constraint or "")
        if field is None:
            raise
        raise AlreadyExistsError(field) from error


def _render(row: Row[*tuple[Any, ...]]) -> CustomerResource:
    said = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
    if row.customer_type == "BUSINESS":
        # Nobody can own a part of one here yet.
        said |= {"kyb_status": said.pop("kyc_status"), "beneficial_owners": []}
    return CustomerResource(**said)
