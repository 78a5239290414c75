"""Customers: creating them with their accounts, reading them, recording their KYC status."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Text, select, type_coerce
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers import beneficial_owners
from cardledger.ledger.customers.authentication import contacts
from cardledger.ledger.customers.authentication.state import Person
from cardledger.ledger.messaging import outbox
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.ports import IdentityVerifier
from cardledger.ledger.projections import accounts
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.engines import constraint_of
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import CUSTOMER_IDENTIFIER
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers import identity
from cardledger.schema.wire.customers.authentication import ContactVerification
from cardledger.schema.wire.customers.beneficial_owners import BeneficialOwnerResource
from cardledger.schema.wire.customers.customers import (
    BusinessCustomerResource,
    CustomerResource,
    IndividualCustomerResource,
)
from cardledger.schema.wire.customers.people import KycStatus
from cardledger.schema.wire.webhooks.envelope import WebhookType

_NOT_SHOWN: Final = frozenset({"platform_id", "identifier"})

_CUSTOMER: Final = select(
    *[column for column in tables.customers.columns if column.name not in _NOT_SHOWN]
)

_CLOCK_DIFFERENCE: Final = timedelta(days=1)
"""Between the id of a customer and its time, at most.

The id is by the clock of the process that made it, the time by PostgreSQL's.
"""

_WEBHOOK_STATUSES: Final = frozenset({"PENDING", "APPROVED", "REJECTED"})
"""The statuses that have a webhook."""

DECIDED: Final = frozenset({"APPROVED", "REJECTED"})
"""The final statuses of a customer or an owner."""

CURRENCIES: Final = type_coerce(tables.customers.c.currencies, postgresql.ARRAY(Text))
"""With PostgreSQL's array type, which has the operator that `contains` needs."""


class CustomerExistsError(Exception):
    """Another active customer has the same value in this `field`."""

    def __init__(self, field: str) -> None:
        super().__init__(f"another customer has this {field}")
        self.field = field


class UnsupportedCurrencyError(Exception):
    """The platform does not support `currency`; it supports `supported`."""

    def __init__(self, currency: str, supported: tuple[str, ...]) -> None:
        super().__init__(f"{currency} is not among {', '.join(supported)}")
        self.currency = currency
        self.supported = supported


class UmaDomainError(Exception):
    """The UMA address is in a domain that is not the platform's own, `own`; None: it has none."""

    def __init__(self, own: str | None) -> None:
        super().__init__(f"not in the platform's domain ({own or 'it has none'})")
        self.own = own


class CustomerDeletedError(Exception):
    """The customer is deleted and cannot be changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewCustomer:
    platform_customer_id: str | None = None
    uma_address: str | None = None
    region: str | None = None
    currencies: tuple[str, ...] | None = None
    email: str | None = None
    phone_number: str | None = None
    address: Mapping[str, Any] | None = None
    end_user_terms_consent: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Individual(_NewCustomer):
    """An individual to be created; None is generated or left empty."""

    full_name: str | None = None
    birth_date: date | None = None
    nationality: str | None = None
    id_type: str | None = None
    identifier: str | None = None
    country_of_issuance: str | None = None
    due_diligence: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Business(_NewCustomer):
    """A business to be created; None is generated or left empty."""

    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerFilters:
    """Filters of a list of customers; None matches all, and times are inclusive."""

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


async def create(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    person: Individual | Business,
    verifier: IdentityVerifier | None,
    keys: KeyRing,
    at: datetime,
) -> CustomerResource:
    """Create a customer, with one internal account per currency.

    Its identifier is stored encrypted with `keys`.
    The webhook of its first KYC status, if it has one, is written as well. Without a verifier an
    individual is UNVERIFIED; a business always is, until it is verified on request.

    Raises: UnsupportedCurrencyError, UmaDomainError; CustomerExistsError, after which the database
    transaction can only be rolled back.
    """
    platform = await platforms.get(connection, platform_id, hold=True)
    currencies = person.currencies or platform.supported_currencies
    check_supported(platform, currencies)
    check_uma_domain(platform, person.uma_address)
    key = new_id()
    await _insert(
        connection,
        {
            "id": key,
            "platform_id": platform_id,
            "platform_customer_id": person.platform_customer_id or str(new_id()),
            "uma_address": person.uma_address or f"${key.hex()}@{platform.uma_domain}",
            "region": person.region,
            "currencies": list(currencies),
            "email": person.email,
            "phone_number": person.phone_number,
            "address": person.address,
            "end_user_terms_consent": person.end_user_terms_consent,
            "is_deleted": False,
            "created_at": at,
            "updated_at": at,
            **_particulars(person, verifier),
            "identifier": _sealed_identifier(person, platform_id, key, keys),
        },
    )
    await accounts.open_all(
        connection, customer_id=key, platform_id=platform_id, currencies=currencies, at=at
    )
    created = await get(connection, platform_id=platform_id, customer_id=key)
    assert created is not None
    await _publish_status(connection, platform_id, created, at)
    return created


def _particulars(
    person: Individual | Business, verifier: IdentityVerifier | None
) -> dict[str, Any]:
    if isinstance(person, Business):
        return {
            "customer_type": "BUSINESS",
            "kyc_status": "UNVERIFIED",
            "business_info": dict(person.info),
        }
    status = "UNVERIFIED" if verifier is None else verifier.initial_kyc_status(person.full_name)
    return {
        "customer_type": "INDIVIDUAL",
        "kyc_status": status,
        "full_name": person.full_name,
        "birth_date": person.birth_date,
        "nationality": person.nationality,
        "id_type": person.id_type,
        "country_of_issuance": person.country_of_issuance,
        "due_diligence": person.due_diligence,
    }


def _sealed_identifier(
    person: Individual | Business, platform_id: Id, customer_id: Id, keys: KeyRing
) -> bytes | None:
    if isinstance(person, Business) or person.identifier is None:
        return None
    location = CUSTOMER_IDENTIFIER.of(platform_id, customer_id)
    return keys.encrypt(person.identifier.encode(), location)


async def get(
    connection: AsyncConnection, *, platform_id: Id, customer_id: Id
) -> CustomerResource | None:
    """Return the platform's customer `customer_id`, or None when it has no such customer."""
    rows = await connection.execute(
        _CUSTOMER.where(
            tables.customers.c.id == customer_id, tables.customers.c.platform_id == platform_id
        )
    )
    row = rows.one_or_none()
    if row is None:
        return None
    owners = await _owners_of(connection, [row])
    verified = await _contacts_of(connection, platform_id, [row])
    return _render(row, owners.get(customer_id, []), verified.get(customer_id))


async def page(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: CustomerFilters,
    wanted: paging.Wanted,
    count_limit: int = paging.COUNT_LIMIT,
) -> paging.Page[CustomerResource]:
    """Return one page of the platform's customers; `count_limit` is that of its total."""
    columns = tables.customers.c
    equal = {
        columns.platform_customer_id: filters.platform_customer_id,
        columns.customer_type: filters.customer_type,
        columns.region: filters.region,
        columns.uma_address: filters.uma_address,
    }
    since = {columns.created_at: filters.created_from, columns.updated_at: filters.updated_from}
    until = {columns.created_at: filters.created_to, columns.updated_at: filters.updated_to}
    matching: list[ColumnElement[bool]] = [columns.platform_id == platform_id]
    matching += [column == value for column, value in equal.items() if value is not None]
    matching += [column >= time for column, time in since.items() if time is not None]
    matching += [column <= time for column, time in until.items() if time is not None]
    matching += paging.made_within(
        columns.id, filters.created_from, filters.created_to, difference=_CLOCK_DIFFERENCE
    )
    if filters.currency is not None:
        matching.append(CURRENCIES.contains([filters.currency]))
    if not filters.with_deleted:
        matching.append(~columns.is_deleted)
    rows = await paging.read(
        connection,
        _CUSTOMER,
        table=tables.customers,
        matching=matching,
        wanted=wanted,
        item=lambda row: row,
        count_limit=count_limit,
    )
    owners = await _owners_of(connection, rows.items)
    verified = await _contacts_of(connection, platform_id, rows.items)
    return paging.Page(
        items=[_render(row, owners.get(row.id, []), verified.get(row.id)) for row in rows.items],
        last=rows.last,
        total_count=rows.total_count,
    )


async def record_kyc_status(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    status: KycStatus,
    at: datetime,
) -> CustomerResource:
    """Set the status of a customer whom the caller has locked, and write its webhook."""
    await connection.execute(
        tables.customers.update()
        .where(tables.customers.c.id == customer_id)
        .values(kyc_status=status, updated_at=at)
    )
    changed = await get(connection, platform_id=platform_id, customer_id=customer_id)
    assert changed is not None
    await _publish_status(connection, platform_id, changed, at)
    return changed


async def _publish_status(
    connection: AsyncConnection, platform_id: Id, customer: CustomerResource, at: datetime
) -> None:
    if isinstance(customer, BusinessCustomerResource):
        process, status = "KYB", customer.kyb_status
    else:
        process, status = "KYC", customer.kyc_status
    if status not in _WEBHOOK_STATUSES:
        return
    await connection.execute(
        outbox.insert(
            type=WebhookType(f"CUSTOMER.{process}_{status}"),
            subject_id=customer.id,
            customer_id=customer.id,
            platform_id=platform_id,
            data=customer.wire(),
            at=at,
        )
    )


async def locked(
    connection: AsyncConnection, platform_id: Id, customer_id: Id
) -> Row[*tuple[Any, ...]] | None:
    """Lock and return the columns that a change looks at; None: there is no such customer.

    Raises: CustomerDeletedError.
    """
    columns = tables.customers.c
    rows = await connection.execute(
        select(
            columns.customer_type,
            columns.region,
            columns.email,
            columns.phone_number,
            columns.id_type,
            columns.identifier,
            columns.country_of_issuance,
            columns.due_diligence,
            columns.business_info,
            columns.uma_address,
            columns.is_deleted,
        )
        .where(columns.id == customer_id, columns.platform_id == platform_id)
        .with_for_update()
    )
    row = rows.one_or_none()
    if row is not None and row.is_deleted:
        raise CustomerDeletedError("the customer is deleted")
    return row


def check_supported(platform: platforms.Platform, wanted: Sequence[str]) -> None:
    """Raise UnsupportedCurrencyError for a currency that the platform does not support."""
    supported = platform.supported_currencies
    for currency in wanted:
        if currency not in supported:
            raise UnsupportedCurrencyError(currency, supported)


def check_uma_domain(platform: platforms.Platform, uma_address: str | None) -> None:
    """Raise UmaDomainError for a chosen address outside the platform's own domain.

    The domain of the installation is shared: its addresses are generated, and no platform chooses
    a name there.
    """
    own = None if platform.uma_domain == platforms.UMA_DOMAIN else platform.uma_domain
    if uma_address is not None and uma_address.partition("@")[2] != own:
        raise UmaDomainError(own)


_FIELD_OF_KEY: Final = {
    "customers_platform_customer_id_key": "platformCustomerId",
    "customers_uma_address_key": "umaAddress",
}


async def _insert(connection: AsyncConnection, row: Mapping[str, Any]) -> None:
    with unique_fields():
        await connection.execute(tables.customers.insert().values(**row))


@contextmanager
def unique_fields() -> Iterator[None]:
    """Raise CustomerExistsError with the field in which another customer has the same value."""
    try:
        yield
    except IntegrityError as error:
        field = _FIELD_OF_KEY.get(constraint_of(error) or "")
        if field is None:
            raise
        raise CustomerExistsError(field) from error


async def _owners_of(
    connection: AsyncConnection, rows: Sequence[Row[*tuple[Any, ...]]]
) -> Mapping[Id, Sequence[BeneficialOwnerResource]]:
    """Return the owners of each business; no statement where no customer is one."""
    businesses = [row.id for row in rows if row.customer_type == "BUSINESS"]
    return await beneficial_owners.of_customers(connection, businesses) if businesses else {}


async def _contacts_of(
    connection: AsyncConnection, platform_id: Id, rows: Sequence[Row[*tuple[Any, ...]]]
) -> Mapping[Id, ContactVerification]:
    """Return which contacts are verified; no statement where no customer's region requires it."""
    people = [
        Person(
            id=row.id,
            platform_id=platform_id,
            region=row.region,
            email=row.email,
            phone_number=row.phone_number,
        )
        for row in rows
    ]
    return await contacts.of_customers(connection, people)


def _render(
    row: Row[*tuple[Any, ...]],
    owners: Sequence[BeneficialOwnerResource],
    verified: ContactVerification | None,
) -> CustomerResource:
    fields = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name
    fields["contact_verification"] = verified
    fields |= fields.pop("due_diligence") or {}
    fields["country_of_issuance"] = identity.issued_in(row.id_type, row.country_of_issuance)
    if row.customer_type == "BUSINESS":
        fields |= {"kyb_status": fields.pop("kyc_status"), "beneficial_owners": owners}
        return BusinessCustomerResource(**fields)
    return IndividualCustomerResource(**fields)
