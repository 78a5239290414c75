"""External accounts: registering them once, reading them, deleting them.

Whoever calls says whose account it is: a platform that names a customer or none, an agent whose
customer is known.
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
from cardledger.ledger.storage import paging
from cardledger.ledger.storage.ids import new_id
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.account_variants import VARIANTS
from cardledger.schema.wire.customers.beneficiaries import IndividualBeneficiary
from cardledger.schema.wire.customers.external_accounts import (
    AccountInfo,
    ExternalAccountResource,
    VerificationStatus,
    VerifiedData,
    shortcomings,
)
from cardledger.schema.wire.errors import FieldError

_INVALID_SUFFIX: Final = "105"

_VERIFICATION_BY_SUFFIX: Final[Mapping[str, VerificationStatus]] = {
    "102": "NOT_MATCHED",
    "103": "PARTIAL_MATCH",
    "104": "PENDING",
    "106": "UNSUPPORTED",
    "107": "CHECKED_BY_RECEIVING_FI",
}
"""What the last three characters of an identifier ask of the sandbox; any other is `MATCHED`."""

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


class Refusal(Enum):
    """Why an account is not registered."""

    INPUT = auto()  # Something is missing, or does not go together.
    CURRENCY = auto()  # The currency is not one of such an account.
    NUMBER = auto()  # No account has such a number.
    DUPLICATE = auto()  # The owner has registered it already.


class RefusedError(Exception):
    """The account was not registered; `errors` name what to change."""

    def __init__(self, refusal: Refusal, *errors: FieldError) -> None:
        super().__init__(refusal.name)
        self.refusal: Final = refusal
        self.errors: Final[Sequence[FieldError]] = errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """An account that somebody wants to register; `customer_id` None: for the platform itself."""

    customer_id: Id | None
    currency: str
    info: AccountInfo
    platform_account_id: str | None = None
    is_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What accounts have to match: an owner, a currency; None matches all."""

    customer_id: Id | None = None
    currency: str | None = None
    of_platform: bool = False  # Only the platform's own, instead of only customers'.


# --- rules, pure -------------------------------------------------------------------------------


def refusal_of(wanted: Registration, *, is_sandbox: bool) -> RefusedError | None:
    """Return why `wanted` cannot be registered whoever asks; None when it can.

    In this order: what is missing, the currency, the check digits, the sandbox's suffix.
    """
    if missing := list(shortcomings(wanted.info)):
        return RefusedError(Refusal.INPUT, *missing)
    if wanted.is_default and wanted.customer_id is None:
        message = "needs a customerId: UMA payments arrive for customers, not for the platform"
        field = FieldError(field="defaultUmaDepositAccount", message=message)
        return RefusedError(Refusal.INPUT, field)
    currencies = wanted.info.variant.currencies
    if currencies is not None and wanted.currency not in currencies:
        return RefusedError(Refusal.CURRENCY, _other_currency(wanted.info, currencies))
    if identifier_errors := list(account_numbers.identifier_errors(wanted.info)):
        return RefusedError(Refusal.NUMBER, *identifier_errors)
    if is_sandbox and _suffix(wanted.info) == _INVALID_SUFFIX:
        message = f"does not exist: in the sandbox, none that ends in {_INVALID_SUFFIX} does"
        return RefusedError(Refusal.NUMBER, FieldError(field="accountInfo", message=message))
    return None


def _other_currency(info: AccountInfo, currencies: frozenset[str]) -> FieldError:
    some = ", ".join(sorted(currencies)) if len(currencies) < 4 else "a code of ISO 4217"  # noqa: PLR2004 - as many as are read at a glance
    return FieldError(field="currency", message=f"must be {some} for a {info.account_type}")


def verification_of(info: AccountInfo, *, is_sandbox: bool) -> VerificationStatus | None:
    """Return how the beneficiary's name compares to the holder's; None: there is no beneficiary.

    Outside the sandbox nobody has asked the rail yet.
    """
    if info.owner is None:
        return None
    return _VERIFICATION_BY_SUFFIX.get(_suffix(info), "MATCHED") if is_sandbox else "PENDING"


def verified_name(info: AccountInfo, status: VerificationStatus | None) -> str | None:
    """Return the holder's name as the sandbox's rail tells it: near a `PARTIAL_MATCH`."""
    owner = info.owner
    if owner is None or status not in {"MATCHED", "PARTIAL_MATCH"}:
        return None
    name = owner.full_name if isinstance(owner, IndividualBeneficiary) else owner.legal_name
    if status == "MATCHED":
        return name
    first, space, rest = name.partition(" ")
    return f"{first[:1]}.{space}{rest}"


def fingerprint(wanted: Registration) -> bytes:
    """Return what two registrations of one account have in common.

    Letter case and spaces do not tell accounts apart; the beneficiary's spelling does not either.
    """
    info = wanted.info
    told = {field: "".join(str(getattr(info, field)).split()).casefold() for field in info.way}
    same = [str(wanted.customer_id), wanted.currency, info.account_type, told]
    return sha256(json.dumps(same, sort_keys=True).encode()).digest()


def _suffix(info: AccountInfo) -> str:
    # Of what looks like an e-mail address, the name decides.
    return info.identifier.partition("@")[0][-3:]


# --- the record --------------------------------------------------------------------------------


async def create(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    wanted: Registration,
    at: datetime,
    is_sandbox: bool,
) -> ExternalAccountResource:
    """Register an account; as the default, it takes the place of the customer's former one.

    Raises: RefusedError, after which the database transaction can only be rolled back.
    """
    if refused := refusal_of(wanted, is_sandbox=is_sandbox):
        raise refused
    if wanted.customer_id is not None:
        await _lock_customer(connection, platform_id, wanted.customer_id)
    verification = verification_of(wanted.info, is_sandbox=is_sandbox)
    key = new_id()
    row = {
        "id": key,
        "platform_id": platform_id,
        "customer_id": wanted.customer_id,
        "platform_account_id": wanted.platform_account_id,
        "currency": wanted.currency,
        "account_type": wanted.info.account_type,
        "status": "ACTIVE" if is_sandbox else "PENDING",
        "default_uma_deposit_account": wanted.is_default,
        "fingerprint": fingerprint(wanted),
        "account_info": wanted.info.model_dump(mode="json", by_alias=True, exclude_none=True),
        "beneficiary_verification_status": verification,
        "beneficiary_verified_name": verified_name(wanted.info, verification),
        "created_at": at,
        "updated_at": at,
    }
    if wanted.is_default:
        await _dethrone(connection, wanted.customer_id, at)
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
    """Return the platform's external account; None when it has no such one.

    With `of_platform`, only those that have no customer are looked at; with `customer_id`, only
    those of that customer.
    """
    matching = _visible(platform_id, account_id, customer_id, of_platform=of_platform)
    row = (await connection.execute(_SHOWN.where(*matching))).one_or_none()
    return None if row is None else _render(row)


async def page(
    connection: AsyncConnection, *, platform_id: Id, filters: Filters, wanted: paging.Wanted
) -> paging.Page[ExternalAccountResource]:
    """Return one page of the platform's external accounts."""
    columns = _EXTERNAL_ACCOUNTS
    matching = [
        columns.platform_id == platform_id,
        columns.deleted_at.is_(None),
        columns.customer_id.is_(None) if filters.of_platform else columns.customer_id.isnot(None),
    ]
    if filters.customer_id is not None:
        matching.append(columns.customer_id == filters.customer_id)
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


async def delete(  # noqa: PLR0913 - whose, which, and when
    connection: AsyncConnection,
    *,
    platform_id: Id,
    account_id: Id,
    at: datetime,
    of_platform: bool = False,
    customer_id: Id | None = None,
) -> bool:
    """Take the account away from readers; the row stays for what was paid there.

    Looked at are those that `get` looks at. Returns whether there was one.
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
    mine = [
        columns.id == account_id,
        columns.platform_id == platform_id,
        columns.deleted_at.is_(None),
    ]
    if customer_id is not None:
        return [*mine, columns.customer_id == customer_id]
    return [*mine, columns.customer_id.is_(None)] if of_platform else mine


async def _lock_customer(connection: AsyncConnection, platform_id: Id, customer_id: Id) -> None:
    """Make those who register for one customer wait for each other, so one default is the last."""
    columns = tables.customers.c
    found = await connection.scalar(
        select(columns.id)
        .where(columns.id == customer_id, columns.platform_id == platform_id, ~columns.is_deleted)
        .with_for_update(key_share=True)
    )
    if found is None:
        message = "is not a customer of this platform"
        raise RefusedError(Refusal.INPUT, FieldError(field="customerId", message=message))


async def _dethrone(connection: AsyncConnection, customer_id: Id | None, at: datetime) -> None:
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
        name = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
        if name != "external_accounts_fingerprint_key":
            # Without its cause, whose detail shows the whole row: errors are logged.
            message = f"the record refused an external account: {name}"
            raise RuntimeError(message) from None
        message = "is registered already for this owner; use that one, or delete it first"
        raise RefusedError(
            Refusal.DUPLICATE, FieldError(field="accountInfo", message=message)
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
