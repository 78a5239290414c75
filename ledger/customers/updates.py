"""Changing a customer: its data, its currencies and its accounts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers import registry
from cardledger.ledger.customers.registry import CURRENCIES, check_supported, locked, unique_fields
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.projections import accounts
from cardledger.ledger.storage.secrets.key_ring import KeyRing, Location
from cardledger.ledger.storage.secrets.sealed_columns import CUSTOMER_IDENTIFIER
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers import identity
from cardledger.schema.wire.customers.accounts import InternalAccountResource
from cardledger.schema.wire.customers.customers import (
    CustomerResource,
    merged,
    missing_contacts,
    undescribed,
)
from cardledger.schema.wire.errors import FieldError


class InvalidCustomerError(Exception):
    """The change contradicts the customer's other data; `errors` say what to change."""

    def __init__(self, *errors: FieldError) -> None:
        super().__init__("invalid")
        self.errors: Final[Sequence[FieldError]] = errors


class MissingContactError(InvalidCustomerError):
    """The customer's region requires contact data that would be missing."""


class CustomerTypeError(Exception):
    """The change is for the other customer type; a type never changes."""

    def __init__(self, customer_type: str) -> None:
        super().__init__(f"the customer is of type {customer_type}, which never changes")


async def change(  # noqa: PLR0913 - each by name
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

    A new currency gets an account. A removed currency keeps its account, which may have a balance.
    `business_info` and `due_diligence` change field by field, and None in them removes a field.
    `identifier` arrives in plain text and is stored encrypted.
    Raises: CustomerDeletedError, CustomerTypeError, InvalidCustomerError, UnsupportedCurrencyError,
    UmaDomainError; CustomerExistsError, after which the database transaction can only be rolled
    back.
    """
    before = await locked(connection, platform_id, customer_id)
    if before is None:
        return None
    if before.customer_type != customer_type:
        raise CustomerTypeError(before.customer_type)
    values = {**changes, "updated_at": at}
    for column in ("business_info", "due_diligence"):
        if column in changes:
            values[column] = merged(getattr(before, column) or {}, changes[column])
    location = CUSTOMER_IDENTIFIER.of(platform_id, customer_id)
    _check_change(before, values, keys, location)
    if changes.get("identifier") is not None:
        values["identifier"] = keys.encrypt(changes["identifier"].encode(), location)
    # An address that the customer has already stays valid when the platform's domain has changed.
    if changes.get("uma_address", before.uma_address) != before.uma_address:
        platform = await platforms.get(connection, platform_id, hold=True)
        registry.check_uma_domain(platform, changes["uma_address"])
    if "currencies" in changes:
        platform = await platforms.get(connection, platform_id, hold=True)
        check_supported(platform, changes["currencies"])
        await _open_missing(connection, platform_id, customer_id, changes["currencies"], at)
    with unique_fields():
        await connection.execute(
            tables.customers.update().where(tables.customers.c.id == customer_id).values(**values)
        )
    return await registry.get(connection, platform_id=platform_id, customer_id=customer_id)


def _check_change(
    before: Row[*tuple[Any, ...]], values: Mapping[str, Any], keys: KeyRing, location: Location
) -> None:
    """Raise InvalidCustomerError where a changed field breaks a rule of `POST /customers`.

    Fields that the change does not touch are not checked: rules may be newer than the customer.
    An identifier that stays is sealed for `location`.
    """
    after = {**before._mapping, **values}  # noqa: SLF001 - SQLAlchemy's public name
    # A customer that is older than the rule may get the one without the other.
    removed = [name for name in ("email", "phone_number") if name in values and not values[name]]
    missing = missing_contacts(
        region=after["region"], email=after["email"], phone_number=after["phone_number"]
    )
    if removed and (errors := list(missing)):
        raise MissingContactError(*errors)
    errors = list(undescribed(values.get("business_info") or {}, within="businessInfo."))
    errors += undescribed(values.get("due_diligence") or {})
    if {"id_type", "identifier", "country_of_issuance"} & values.keys():
        identifier = after["identifier"]
        if isinstance(identifier, bytes):
            identifier = keys.decrypt(identifier, location).decode()
        errors += identity.identifier_errors(
            id_type=after["id_type"], identifier=identifier, country=after["country_of_issuance"]
        )
    if errors:
        raise InvalidCustomerError(*errors)


async def open_account(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    currency: str,
    at: datetime,
) -> InternalAccountResource | None:
    """Open one more account of a customer; None when the platform has no such customer.

    Raises: CustomerDeletedError, UnsupportedCurrencyError, accounts.TooManyAccountsError.
    """
    if await locked(connection, platform_id, customer_id) is None:
        return None
    platform = await platforms.get(connection, platform_id, hold=True)
    check_supported(platform, (currency,))
    columns = tables.customers.c
    await connection.execute(
        tables.customers.update()
        .where(columns.id == customer_id, ~CURRENCIES.contains([currency]))
        .values(currencies=func.array_append(columns.currencies, currency), updated_at=at)
    )
    return await accounts.open_one(
        connection, customer_id=customer_id, platform_id=platform_id, currency=currency, at=at
    )


async def _open_missing(
    connection: AsyncConnection,
    platform_id: Id,
    customer_id: Id,
    currencies: Sequence[str],
    at: datetime,
) -> None:
    account = tables.internal_accounts.c
    open_currencies = set(
        await connection.scalars(select(account.currency).where(account.customer_id == customer_id))
    )
    missing = [currency for currency in currencies if currency not in open_currencies]
    if missing:
        await accounts.open_all(
            connection,
            customer_id=customer_id,
            platform_id=platform_id,
            currencies=missing,
            at=at,
        )
