"""External accounts: register (once per owner), read, delete.

The caller names the owner: a platform names one of its customers or itself, an agent has the
customer for which it acts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.customers import account_numbers
from cardledger.ledger.ports import AccountCheck, AccountVerifier
from cardledger.ledger.storage import caps, paging
from cardledger.ledger.storage.engines import constraint_of
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.tenancy import own
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.account_variants import VARIANTS
from cardledger.schema.wire.customers.external_accounts import (
    AccountInfo,
    ExternalAccountResource,
    VerificationStatus,
    VerifiedData,
    shortcomings,
)
from cardledger.schema.wire.errors import FieldError

ACCOUNT_LIMIT: Final = 1_000
"""The most external accounts of a customer, and of the platform itself."""

_LISTED_CURRENCIES_LIMIT: Final = 3

_EXTERNAL_ACCOUNTS: Final = tables.external_accounts.c

_SHOWN: Final[Select[*tuple[Any, ...]]] = select(
    _EXTERNAL_ACCOUNTS.id,
    _EXTERNAL_ACCOUNTS.customer_id,
    _EXTERNAL_ACCOUNTS.status,
    _EXTERNAL_ACCOUNTS.platform_account_id,
    _EXTERNAL_ACCOUNTS.currency,
    _EXTERNAL_ACCOUNTS.default_uma_deposit_account,
    _EXTERNAL_ACCOUNTS.beneficiary_verification_status,
    _EXTERNAL_ACCOUNTS.beneficiary_verified_name,
    _EXTERNAL_ACCOUNTS.account_info,
)


class RegistrationRefusal(Enum):
    """Why an account cannot be registered."""

    INPUT = auto()  # A field is missing, or fields contradict each other.
    CURRENCY = auto()  # Not a currency of this account type.
    NUMBER = auto()  # The identifier is invalid, or the account does not exist.
    DUPLICATE = auto()  # The owner has already registered it.


class RegistrationRefusedError(Exception):
    """The account was not registered; `errors` name what to change."""

    def __init__(self, refusal: RegistrationRefusal, *errors: FieldError) -> None:
        super().__init__(refusal.name)
        self.refusal: Final = refusal
        self.errors: Final[Sequence[FieldError]] = errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """An account to be registered; `customer_id` None: owned by the platform."""

    customer_id: Id | None
    currency: str
    info: AccountInfo
    platform_account_id: str | None = None
    is_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAccountFilters:
    """Filters of a list of accounts; None matches all."""

    customer_id: Id | None = None
    currency: str | None = None
    of_platform: bool = False  # Only the platform's own, instead of only customers'.


# --- rules, pure -------------------------------------------------------------------------------


def refusal_of(
    wanted: Registration, *, check_digits: bool = True
) -> RegistrationRefusedError | None:
    """Return why `wanted` cannot be registered, by its own data; None when it can.

    In this order: missing fields, the currency, the identifier, with its check digits or without.
    """
    if missing := list(shortcomings(wanted.info)):
        return RegistrationRefusedError(RegistrationRefusal.INPUT, *missing)
    if wanted.is_default and wanted.customer_id is None:
        message = "needs a customerId: UMA payments arrive for customers, not for the platform"
        field = FieldError(field="defaultUmaDepositAccount", message=message)
        return RegistrationRefusedError(RegistrationRefusal.INPUT, field)
    currencies = wanted.info.variant.currencies
    if currencies is not None and wanted.currency not in currencies:
        return RegistrationRefusedError(
            RegistrationRefusal.CURRENCY, _other_currency(wanted.info, currencies)
        )
    identifier_errors = list(
        account_numbers.identifier_errors(wanted.info, check_digits=check_digits)
    )
    if identifier_errors:
        return RegistrationRefusedError(RegistrationRefusal.NUMBER, *identifier_errors)
    return None


def checked(wanted: Registration, verifier: AccountVerifier | None) -> AccountCheck | None:
    """Return what the payment rail reports of `wanted`; None when no verifier is connected.

    Raises: RegistrationRefusedError.
    """
    check_digits = verifier is None or verifier.checks_digits()
    if refused := refusal_of(wanted, check_digits=check_digits):
        raise refused
    if verifier is None:
        return None
    check = verifier.check(wanted.info)
    if check.objection is not None:
        field = FieldError(field="accountInfo", message=check.objection)
        raise RegistrationRefusedError(RegistrationRefusal.NUMBER, field)
    return check


def name_match(info: AccountInfo, check: AccountCheck | None) -> VerificationStatus | None:
    """Return how beneficiary and holder compare; None: there is no beneficiary.

    PENDING until a payment rail has checked the account.
    """
    if info.owner is None:
        return None
    return "PENDING" if check is None else check.name_match


def _other_currency(info: AccountInfo, currencies: frozenset[str]) -> FieldError:
    is_short = len(currencies) <= _LISTED_CURRENCIES_LIMIT
    allowed = ", ".join(sorted(currencies)) if is_short else "a code of ISO 4217"
    return FieldError(field="currency", message=f"must be {allowed} for a {info.account_type}")


def fingerprint(wanted: Registration) -> bytes:
    """Return a hash that two registrations of the same account share.

    Letter case, spaces and the beneficiary's spelling do not distinguish accounts.
    """
    info = wanted.info
    identifier = {
        field: "".join(str(getattr(info, field)).split()).casefold() for field in info.way
    }
    same = [str(wanted.customer_id), wanted.currency, info.account_type, identifier]
    return sha256(json.dumps(same, sort_keys=True).encode()).digest()


# --- the record --------------------------------------------------------------------------------


async def create(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    wanted: Registration,
    verifier: AccountVerifier | None,
    at: datetime,
) -> ExternalAccountResource:
    """Register an account; a default replaces the customer's former default.

    Without a verifier the account stays PENDING.
    Raises: CapReachedError; RegistrationRefusedError, after which the database transaction can only
    be rolled back.
    """
    check = checked(wanted, verifier)
    if wanted.customer_id is not None:
        await _lock_customer(connection, platform_id, wanted.customer_id)
    columns = _EXTERNAL_ACCOUNTS
    await caps.check(
        connection,
        tables.external_accounts,
        columns.deleted_at.is_(None),
        *([columns.customer_id.is_(None)] if wanted.customer_id is None else []),
        platform_id=platform_id,
        customer_id=wanted.customer_id,
        limit=ACCOUNT_LIMIT,
        noun="external accounts",
    )
    key = new_id()
    row = {
        "id": key,
        "platform_id": platform_id,
        "customer_id": wanted.customer_id,
        "platform_account_id": wanted.platform_account_id,
        "currency": wanted.currency,
        "account_type": wanted.info.account_type,
        "status": "PENDING" if check is None or check.requires_challenge else "ACTIVE",
        "default_uma_deposit_account": wanted.is_default,
        "fingerprint": fingerprint(wanted),
        "account_info": wanted.info.model_dump(mode="json", by_alias=True, exclude_none=True),
        "beneficiary_verification_status": name_match(wanted.info, check),
        "beneficiary_verified_name": None if check is None else check.verified_name,
        "created_at": at,
        "updated_at": at,
    }
    if wanted.is_default:
        await _unset_default(connection, wanted.customer_id, at)
    await _insert(connection, row)
    created = await get(connection, platform_id=platform_id, account_id=key)
    assert created is not None
    return created


async def get(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    account_id: Id,
    of_platform: bool = False,
    customer_id: Id | None = None,
) -> ExternalAccountResource | None:
    """Return the platform's external account; None when it has no such account.

    With `of_platform`, only accounts without a customer; with `customer_id`, only accounts of
    that customer.
    """
    matching = _visible(platform_id, account_id, customer_id, of_platform=of_platform)
    row = (await connection.execute(_SHOWN.where(*matching))).one_or_none()
    return None if row is None else _render(row)


async def page(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    filters: ExternalAccountFilters,
    wanted: paging.Wanted,
) -> paging.Page[ExternalAccountResource]:
    """Return one page of the platform's external accounts."""
    columns = _EXTERNAL_ACCOUNTS
    matching = [
        columns.platform_id == platform_id,
        columns.deleted_at.is_(None),
        columns.customer_id.is_(None) if filters.of_platform else columns.customer_id.isnot(None),
    ]
    if filters.customer_id is not None:
        customer = own(tables.customers, filters.customer_id, platform_id=platform_id)
        matching.append(columns.customer_id == customer)
    if filters.currency is not None:
        matching.append(columns.currency == filters.currency)
    return await paging.read(
        connection,
        _SHOWN,
        table=tables.external_accounts,
        matching=matching,
        wanted=wanted,
        item=_render,
    )


async def delete(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    account_id: Id,
    at: datetime,
    of_platform: bool = False,
    customer_id: Id | None = None,
) -> bool:
    """Delete the account that `get` returns; its row is kept for payments that refer to it.

    Returns whether there was such an account.
    """
    gone = await connection.execute(
        update(tables.external_accounts)
        .where(*_visible(platform_id, account_id, customer_id, of_platform=of_platform))
        .values(deleted_at=at, updated_at=at)
    )
    return gone.rowcount == 1


def _visible(
    platform_id: Id, account_id: Id, customer_id: Id | None, *, of_platform: bool
) -> Sequence[ColumnElement[bool]]:
    columns = _EXTERNAL_ACCOUNTS
    matching = [
        columns.id == account_id,
        columns.platform_id == platform_id,
        columns.deleted_at.is_(None),
    ]
    if customer_id is not None:
        return [*matching, columns.customer_id == customer_id]
    return [*matching, columns.customer_id.is_(None)] if of_platform else matching


async def _lock_customer(connection: AsyncConnection, platform_id: Id, customer_id: Id) -> None:
    """Lock the customer, so that concurrent registrations leave it with one default at most."""
    columns = tables.customers.c
    locked_id = await connection.scalar(
        select(columns.id)
        .where(columns.id == customer_id, columns.platform_id == platform_id, ~columns.is_deleted)
        .with_for_update(key_share=True)
    )
    if locked_id is None:
        message = "is not a customer of this platform"
        raise RegistrationRefusedError(
            RegistrationRefusal.INPUT, FieldError(field="customerId", message=message)
        )


async def _unset_default(connection: AsyncConnection, customer_id: Id | None, at: datetime) -> None:
    columns = _EXTERNAL_ACCOUNTS
    await connection.execute(
        update(tables.external_accounts)
        .where(
            columns.customer_id == customer_id,
            columns.default_uma_deposit_account,
            columns.deleted_at.is_(None),
        )
        .values(default_uma_deposit_account=False, updated_at=at)
    )


async def _insert(connection: AsyncConnection, row: Mapping[str, Any]) -> None:
    try:
        await connection.execute(tables.external_accounts.insert().values(**row))
    except IntegrityError as error:
        name = constraint_of(error)
        if name != "external_accounts_fingerprint_key":
            # Without its cause, whose detail contains the whole row: errors are logged.
            message = f"the record refused an external account: {name}"
            raise RuntimeError(message) from None
        message = "is already registered for this owner; use that account, or delete it first"
        raise RegistrationRefusedError(
            RegistrationRefusal.DUPLICATE, FieldError(field="accountInfo", message=message)
        ) from error


def _render(row: Row[*tuple[Any, ...]]) -> ExternalAccountResource:
    name = row.beneficiary_verified_name
    info = row.account_info
    rails = VARIANTS[info["accountType"]].rails
    return ExternalAccountResource(
        id=row.id,
        customer_id=row.customer_id,
        status=row.status,
        platform_account_id=row.platform_account_id,
        currency=row.currency,
        default_uma_deposit_account=row.default_uma_deposit_account,
        beneficiary_verification_status=row.beneficiary_verification_status,
        beneficiary_verified_data=None if name is None else VerifiedData(full_name=name),
        account_info=info | {"paymentRails": list(rails)} if rails else info,
    )
