"""Customers: who holds cards, and whether they may."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Text, func, select, type_coerce
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.agents import registry as agents
from cardledger.ledger.customers import beneficial_owners
from cardledger.ledger.messaging import outbox
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.projections import accounts
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers import identity
from cardledger.schema.wire.customers.accounts import InternalAccountResource
from cardledger.schema.wire.customers.beneficial_owners import BeneficialOwnerResource
from cardledger.schema.wire.customers.customers import (
    CustomerResource,
    merged,
    missing_contacts,
    undescribed,
)
from cardledger.schema.wire.customers.people import KycStatus
from cardledger.schema.wire.errors import FieldError
from cardledger.schema.wire.webhooks.envelope import WebhookType

_KYC_BY_SUFFIX: Final[Mapping[str, KycStatus]] = {
    "001": "PENDING",
    "002": "REJECTED",
    "003": "UNVERIFIED",
}
"""What the last three characters of an individual's full name ask of the sandbox."""

_NOT_SHOWN: Final = frozenset({"platform_id", "identifier"})

_CUSTOMER: Final = select(
    *[column for column in tables.customers.columns if column.name not in _NOT_SHOWN]
)

_TOLD: Final = frozenset({"PENDING", "APPROVED", "REJECTED"})
"""What platforms are told when a customer comes to stand so; the rest is how it begins."""

DECIDED: Final = frozenset({"APPROVED", "REJECTED"})
"""Where a customer or an owner stays."""

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


class InvalidError(Exception):
    """What is asked for does not go together with what is there; `errors` say what to mend."""

    def __init__(self, *errors: FieldError) -> None:
        super().__init__("invalid")
        self.errors: Final[Sequence[FieldError]] = errors


class MissingContactError(InvalidError):
    """The customer's region asks for ways to reach it that are not there."""


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
    end_user_terms_consent: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Individual(_Applicant):
    """A person who becomes a customer; what is None is made up or left open."""

    full_name: str | None = None
    birth_date: date | None = None
    nationality: str | None = None
    id_type: str | None = None
    sealed_identifier: bytes | None = None
    country_of_issuance: str | None = None
    due_diligence: Mapping[str, Any] | None = None


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
    platform_id: Id,
    person: Individual | Business,
    at: datetime,
    is_sandbox: bool = True,
) -> CustomerResource:
    """Make `person` a customer, with one internal account per currency.

    When it is decided at once how a person stands, the platform is told by webhook as well.

    Raises: UnsupportedCurrencyError; AlreadyExistsError, after which the database transaction
    can only be rolled back.
    """
    platform = await platforms.get(connection, platform_id, hold=True)
    currencies = person.currencies or platform.supported_currencies
    _check_supported(platform, currencies)
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
            **_particulars(person, is_sandbox=is_sandbox),
        },
    )
    await accounts.open_all(
        connection, customer_id=key, platform_id=platform_id, currencies=currencies, at=at
    )
    created = await get(connection, platform_id=platform_id, customer_id=key)
    assert created is not None
    await _tell(connection, platform_id, created, at)
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
        "id_type": person.id_type,
        "identifier": person.sealed_identifier,
        "country_of_issuance": person.country_of_issuance,
        "due_diligence": person.due_diligence,
    }


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
    owners = await beneficial_owners.of_customers(connection, [customer_id])
    return _render(row, owners.get(customer_id, []))


async def page(
    connection: AsyncConnection, *, platform_id: Id, filters: Filters, wanted: paging.Wanted
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
    found = await paging.read(
        connection,
        _CUSTOMER,
        table=tables.customers,
        matching=matching,
        wanted=wanted,
        item=lambda row: row,
    )
    owners = await beneficial_owners.of_customers(connection, [row.id for row in found.items])
    return paging.Page(
        items=[_render(row, owners.get(row.id, [])) for row in found.items],
        last=found.last,
        total_count=found.total_count,
    )


async def change(  # noqa: PLR0913 - whose, which, and what
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    customer_type: str,
    changes: Mapping[str, Any],
    keys: KeyRing,
    at: datetime,
) -> CustomerResource | None:
    """Change columns of a customer; None when the platform has no such customer.

    A currency that comes in gets an account, one that goes keeps its account: there may be money
    on it. What `business_info` and `due_diligence` do not name stays, and None in them takes away.
    `identifier` comes in the open and is kept encrypted.
    Raises: DeletedError, OtherTypeError, InvalidError, UnsupportedCurrencyError;
    AlreadyExistsError, after which the database transaction can only be rolled back.
    """
    before = await _locked(connection, platform_id, customer_id)
    if before is None:
        return None
    if before.customer_type != customer_type:
        raise OtherTypeError(before.customer_type)
    values = {**changes, "updated_at": at}
    for said in ("business_info", "due_diligence"):
        if said in changes:
            values[said] = merged(getattr(before, said) or {}, changes[said])
    _check_change(before, values, keys)
    if changes.get("identifier") is not None:
        values["identifier"] = keys.encrypt(changes["identifier"].encode())
    if "currencies" in changes:
        platform = await platforms.get(connection, platform_id, hold=True)
        _check_supported(platform, changes["currencies"])
        await _open_missing(connection, platform_id, customer_id, changes["currencies"], at)
    with _uniqueness():
        await connection.execute(
            tables.customers.update().where(tables.customers.c.id == customer_id).values(**values)
        )
    return await get(connection, platform_id=platform_id, customer_id=customer_id)


async def open_account(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    currency: str,
    at: datetime,
) -> InternalAccountResource | None:
    """Open one more account of a customer; None when the platform has no such customer.

    Raises: DeletedError, UnsupportedCurrencyError, accounts.TooManyAccountsError.
    """
    if await _locked(connection, platform_id, customer_id) is None:
        return None
    platform = await platforms.get(connection, platform_id, hold=True)
    _check_supported(platform, (currency,))
    columns = tables.customers.c
    await connection.execute(
        tables.customers.update()
        .where(columns.id == customer_id, ~_CURRENCIES.contains([currency]))
        .values(currencies=func.array_append(columns.currencies, currency), updated_at=at)
    )
    return await accounts.open_one(
        connection, customer_id=customer_id, platform_id=platform_id, currency=currency, at=at
    )


def _check_change(before: Row[*tuple[Any, ...]], values: Mapping[str, Any], keys: KeyRing) -> None:
    """Hold what a customer would become to the rules that a new one has to meet.

    Only where they are touched: what was fine when it came in is not refused for other changes.
    """
    after = {**before._mapping, **values}  # noqa: SLF001 - SQLAlchemy's public name for it
    # A customer from before the rule may get one of the two without the other.
    lost = [name for name in ("email", "phone_number") if name in values and not values[name]]
    missing = missing_contacts(
        region=after["region"], email=after["email"], phone_number=after["phone_number"]
    )
    if lost and (errors := list(missing)):
        raise MissingContactError(*errors)
    errors = list(undescribed(values.get("business_info") or {}, within="businessInfo."))
    errors += undescribed(values.get("due_diligence") or {})
    if {"id_type", "identifier", "country_of_issuance"} & values.keys():
        identifier = after["identifier"]
        if isinstance(identifier, bytes):
            identifier = keys.decrypt(identifier).decode()
        errors += identity.identifier_errors(
            id_type=after["id_type"], identifier=identifier, country=after["country_of_issuance"]
        )
    if errors:
        raise InvalidError(*errors)


async def decide(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    status: KycStatus,
    at: datetime,
) -> CustomerResource:
    """Let a customer, whom the caller has locked, stand as `status` says, and tell the platform.

    When a business is decided, so are its owners.
    """
    if status in DECIDED:
        await beneficial_owners.decide(connection, customer_id=customer_id, at=at)
    await connection.execute(
        tables.customers.update()
        .where(tables.customers.c.id == customer_id)
        .values(kyc_status=status, updated_at=at)
    )
    decided = await get(connection, platform_id=platform_id, customer_id=customer_id)
    assert decided is not None
    await _tell(connection, platform_id, decided, at)
    return decided


async def _tell(
    connection: AsyncConnection, platform_id: Id, customer: CustomerResource, at: datetime
) -> None:
    what, status = (
        ("KYC", customer.kyc_status) if customer.kyc_status else ("KYB", customer.kyb_status)
    )
    if status not in _TOLD:
        return
    await connection.execute(
        outbox.insert(
            type=WebhookType(f"CUSTOMER.{what}_{status}"),
            subject_id=customer.id,
            customer_id=customer.id,
            platform_id=platform_id,
            data=customer.wire(),
            at=at,
        )
    )


async def delete(
    connection: AsyncConnection, *, platform_id: Id, customer_id: Id, at: datetime
) -> CustomerResource | None:
    """Delete a customer for the platform with its agents, and close its accounts; the books stay.

    None when the platform has no such customer.
    Raises: DeletedError; InUseError while it has a card that is not closed, or money.
    """
    before = await _locked(connection, platform_id, customer_id)
    if before is None:
        return None
    # Before the accounts: whoever spends for an agent locks it before them, too.
    await agents.delete_of_customer(connection, customer_id=customer_id, at=at)
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


async def _check_unused(connection: AsyncConnection, customer_id: Id) -> None:
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
    connection: AsyncConnection, platform_id: Id, customer_id: Id
) -> Row[*tuple[Any, ...]] | None:
    """Return the customer and let nobody else change it until the end; None: there is none.

    Raises: DeletedError.
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
            columns.is_deleted,
        )
        .where(columns.id == customer_id, columns.platform_id == platform_id)
        .with_for_update()
    )
    row = rows.one_or_none()
    if row is not None and row.is_deleted:
        raise DeletedError("the customer is deleted")
    return row


def _check_supported(platform: platforms.Platform, wanted: Sequence[str]) -> None:
    """Raise UnsupportedCurrencyError for a currency that the platform does not have."""
    has = platform.supported_currencies
    for currency in wanted:
        if currency not in has:
            raise UnsupportedCurrencyError(currency, has)


async def _open_missing(
    connection: AsyncConnection,
    platform_id: Id,
    customer_id: Id,
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


def _render(
    row: Row[*tuple[Any, ...]], owners: Sequence[BeneficialOwnerResource]
) -> CustomerResource:
    said = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
    said |= said.pop("due_diligence") or {}
    said["country_of_issuance"] = identity.issued_in(row.id_type, row.country_of_issuance)
    if row.customer_type == "BUSINESS":
        said |= {"kyb_status": said.pop("kyc_status"), "beneficial_owners": owners}
    return CustomerResource(**said)
