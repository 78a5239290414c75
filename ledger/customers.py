"""Customers: who holds cards, and whether they may."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from ledger import accounts, platforms
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Individual:
    """A person who becomes a customer; what is None is made up or left open."""

    platform_customer_id: str | None = None
    uma_address: str | None = None
    region: str | None = None
    currencies: tuple[str, ...] | None = None
    email: str | None = None
    phone_number: str | None = None
    full_name: str | None = None
    birth_date: date | None = None
    nationality: str | None = None
    address: Mapping[str, Any] | None = None


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
    person: Individual,
    at: datetime,
    is_sandbox: bool = True,
) -> CustomerResource:
    """Make `person` a customer, with one internal account per currency.

    Raises: UnsupportedCurrencyError; AlreadyExistsError, after which the database transaction
    can only be rolled back.
    """
    platform = await platforms.get(connection, platform_id)
    currencies = person.currencies or platform.supported_currencies
    for currency in currencies:
        if currency not in platform.supported_currencies:
            raise UnsupportedCurrencyError(currency, platform.supported_currencies)
    key = new_id()
    await _insert(
        connection,
        {
            "id": key,
            "platform_id": platform_id,
            "platform_customer_id": person.platform_customer_id or str(new_id()),
            "customer_type": "INDIVIDUAL",
            # No platform is a regulated institution yet.
            "kyc_status": initial_kyc_status(
                person.full_name, regulated=False, is_sandbox=is_sandbox
            ),
            "uma_address": person.uma_address or f"${key.hex}@{UMA_DOMAIN}",
            "region": person.region,
            "currencies": list(currencies),
            "email": person.email,
            "phone_number": person.phone_number,
            "full_name": person.full_name,
            "birth_date": person.birth_date,
            "nationality": person.nationality,
            "address": person.address,
            "is_deleted": False,
            "created_at": at,
            "updated_at": at,
        },
    )
    await accounts.open_all(
        connection, customer_id=key, platform_id=platform_id, currencies=currencies, at=at
    )
    created = await get(connection, platform_id=platform_id, customer_id=key)
    assert created is not None
    return created


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


_FIELD_OF_KEY: Final = {
    "customers_platform_customer_id_key": "platformCustomerId",
    "customers_uma_address_key": "umaAddress",
}


async def _insert(connection: AsyncConnection, row: Mapping[str, Any]) -> None:
    try:
        await connection.execute(tables.customers.insert().values(**row))
    except IntegrityError as error:
        constraint = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
        field = _FIELD_OF_KEY.get(constraint or "")
        if field is None:
            raise
        raise AlreadyExistsError(field) from error


def _render(row: Row[*tuple[Any, ...]]) -> CustomerResource:
    return CustomerResource(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
