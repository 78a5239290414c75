"""Beneficial owners: who owns or controls a business, and by how much.

An owner is `PENDING` until its business is decided. Its tax number is encrypted at rest; only the
operations on owners return it. A customer, which webhooks carry whole, contains its owners without
their tax numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import Row, Text, func, select, tuple_, type_coerce
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.ports import IdentityVerifier
from cardledger.ledger.storage import caps, paging
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import OWNER_IDENTIFIER
from cardledger.ledger.storage.tenancy import own
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers import identity
from cardledger.schema.wire.customers.beneficial_owners import (
    WHOLE,
    BeneficialOwnerResource,
    PersonalInfoResource,
)
from cardledger.schema.wire.errors import FieldError

OWNER_LIMIT: Final = 100
"""The most beneficial owners of a business."""

_OWNERS: Final = tables.beneficial_owners.c
_BUSINESSES: Final = tables.customers.c

_OWNER: Final = select(tables.beneficial_owners)
_OF_BUSINESS: Final = _OWNERS.customer_id, _OWNERS.id
_READ_AT_ONCE: Final = 200

_OWNED: Final = "UBO"
_UNDECIDED: Final = ("UNVERIFIED", "PENDING")


class UnknownBusinessError(Exception):
    """The platform has no such customer, or has deleted it."""


class NotABusinessError(Exception):
    """The customer is an individual; only a business has owners."""


class InvalidOwnerError(Exception):
    """The owner is invalid; `errors` say what to change."""

    def __init__(self, *errors: FieldError) -> None:
        super().__init__("invalid")
        self.errors: Final[Sequence[FieldError]] = errors


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOwner:
    """An owner to be added; `personal_info` with the names of the wire."""

    customer_id: Id
    roles: Sequence[str]
    ownership_percentage: Decimal
    personal_info: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerChange:
    """A change of an owner: None keeps a field; in `personal_info`, None removes one."""

    roles: Sequence[str] | None = None
    ownership_percentage: Decimal | None = None
    personal_info: Mapping[str, Any] | None = None


async def create(
    connection: AsyncConnection, *, platform_id: Id, owner: NewOwner, keys: KeyRing, at: datetime
) -> BeneficialOwnerResource:
    """Add an owner to a business.

    Raises: UnknownBusinessError, NotABusinessError, InvalidOwnerError, CapReachedError; nothing has
    been written.
    """
    await _lock(connection, platform_id, owner.customer_id)
    await caps.check(
        connection,
        tables.beneficial_owners,
        platform_id=platform_id,
        customer_id=owner.customer_id,
        limit=OWNER_LIMIT,
        noun="beneficial owners",
        advice="",
    )
    key = new_id()
    row = {
        "id": key,
        "platform_id": platform_id,
        "customer_id": owner.customer_id,
        "roles": list(owner.roles),
        "ownership_percentage": owner.ownership_percentage,
        "kyc_status": "PENDING",
        "created_at": at,
        "updated_at": at,
        **_identity_columns(owner.personal_info, platform_id, key, keys),
    }
    await _check_share(connection, row)
    await connection.execute(tables.beneficial_owners.insert().values(**row))
    created = await get(connection, platform_id=platform_id, owner_id=key, keys=keys)
    assert created is not None
    return created


async def get(
    connection: AsyncConnection, *, platform_id: Id, owner_id: Id, keys: KeyRing
) -> BeneficialOwnerResource | None:
    """Return the platform's owner `owner_id`, or None when it has no such owner."""
    rows = await connection.execute(
        _OWNER.where(_OWNERS.id == owner_id, _OWNERS.platform_id == platform_id)
    )
    row = rows.one_or_none()
    return None if row is None else _render(row, keys)


async def page(
    connection: AsyncConnection,
    *,
    platform_id: Id,
    customer_id: Id,
    wanted: paging.Wanted,
    keys: KeyRing,
) -> paging.Page[BeneficialOwnerResource]:
    """Return one page of the owners of a business; empty when there is no such business."""
    return await paging.read(
        connection,
        _OWNER,
        table=tables.beneficial_owners,
        matching=[
            _OWNERS.platform_id == platform_id,
            _OWNERS.customer_id == own(tables.customers, customer_id, platform_id=platform_id),
        ],
        wanted=wanted,
        item=lambda row: _render(row, keys),
        count_limit=None,  # The interface promises `totalCount` here.
    )


async def of_customers(
    connection: AsyncConnection, customer_ids: Sequence[Id]
) -> dict[Id, list[BeneficialOwnerResource]]:
    """Return the owners of each business among `customer_ids`, without their tax numbers.

    The caller has checked that they are the platform's customers. A page of them has ten thousand
    owners at most, which would block the event loop: they are read in parts.
    """
    wanted = _OWNER.where(paging.is_among(_OWNERS.customer_id, customer_ids))
    wanted = wanted.order_by(*_OF_BUSINESS).limit(_READ_AT_ONCE)
    owners: dict[Id, list[BeneficialOwnerResource]] = {}
    rows = (await connection.execute(wanted)).all()
    while rows:
        for row in rows:
            owners.setdefault(row.customer_id, []).append(_render(row, None))
        if len(rows) < _READ_AT_ONCE:
            break
        after = tuple_(*_OF_BUSINESS) > tuple_(rows[-1].customer_id, rows[-1].id)
        rows = (await connection.execute(wanted.where(after))).all()
    return owners


async def change(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    owner_id: Id,
    change: OwnerChange,
    keys: KeyRing,
    at: datetime,
) -> BeneficialOwnerResource | None:
    """Change an owner; None when the platform has no such owner.

    A change is not verified again: a decided owner keeps its status.
    Raises: UnknownBusinessError, InvalidOwnerError; then nothing has been written.
    """
    customer_id = await connection.scalar(
        select(_OWNERS.customer_id).where(
            _OWNERS.id == owner_id, _OWNERS.platform_id == platform_id
        )
    )
    if customer_id is None:
        return None
    await _lock(connection, platform_id, customer_id)
    rows = await connection.execute(_OWNER.where(_OWNERS.id == owner_id))
    before = dict(rows.mappings().one())
    values: dict[str, Any] = {"updated_at": at}
    if change.roles is not None:
        values["roles"] = list(change.roles)
    if change.ownership_percentage is not None:
        values["ownership_percentage"] = change.ownership_percentage
    if change.personal_info is not None:
        info = before["personal_info"] | {
            "identifier": _identifier(before["identifier"], platform_id, owner_id, keys),
            **change.personal_info,
        }
        stated = {name: value for name, value in info.items() if value is not None}
        values |= _identity_columns(stated, platform_id, owner_id, keys)
    await _check_share(connection, before | values)
    await connection.execute(
        tables.beneficial_owners.update().where(_OWNERS.id == owner_id).values(**values)
    )
    return await get(connection, platform_id=platform_id, owner_id=owner_id, keys=keys)


async def resolve_all(
    connection: AsyncConnection, *, customer_id: Id, verifier: IdentityVerifier, at: datetime
) -> None:
    """Set the KYC status of every undecided owner of a business that is decided and locked."""
    rows = await connection.execute(
        select(_OWNERS.id, _OWNERS.kyc_status, _OWNERS.personal_info)
        .where(_OWNERS.customer_id == customer_id, _OWNERS.kyc_status.in_(_UNDECIDED))
        .order_by(_OWNERS.id)
    )
    for row in rows.all():
        status = verifier.owner_kyc_status(row.personal_info["lastName"])
        if status != row.kyc_status:
            await connection.execute(
                tables.beneficial_owners.update()
                .where(_OWNERS.id == row.id)
                .values(kyc_status=status, updated_at=at)
            )


async def _lock(connection: AsyncConnection, platform_id: Id, customer_id: Id) -> None:
    """Lock the business, and with it its owners, until the database transaction ends.

    Raises: UnknownBusinessError, NotABusinessError.
    """
    rows = await connection.execute(
        select(_BUSINESSES.customer_type)
        .where(
            _BUSINESSES.id == customer_id,
            _BUSINESSES.platform_id == platform_id,
            ~_BUSINESSES.is_deleted,
        )
        .with_for_update(key_share=True)
    )
    row = rows.one_or_none()
    if row is None:
        raise UnknownBusinessError
    if row.customer_type != "BUSINESS":
        raise NotABusinessError


async def _check_share(connection: AsyncConnection, row: Mapping[str, Any]) -> None:
    """Raise InvalidOwnerError when the shares of a business would exceed 100 percent.

    Only shares of owners with the role UBO are added up: a director or control person may hold a
    share through one of the UBOs, and state it as well.
    """
    if _OWNED not in row["roles"]:
        return
    roles = type_coerce(_OWNERS.roles, postgresql.ARRAY(Text))
    others = await connection.scalar(
        select(func.coalesce(func.sum(_OWNERS.ownership_percentage), 0)).where(
            _OWNERS.customer_id == row["customer_id"],
            _OWNERS.id != row["id"],
            roles.contains([_OWNED]),
        )
    )
    left = WHOLE - Decimal(others or 0)
    if row["ownership_percentage"] > left:
        message = f"must be at most {left.normalize():f}; other UBOs hold the rest"
        raise InvalidOwnerError(FieldError(field="ownershipPercentage", message=message))


def _identifier(sealed: bytes, platform_id: Id, owner_id: Id, keys: KeyRing) -> str:
    return keys.decrypt(sealed, OWNER_IDENTIFIER.of(platform_id, owner_id)).decode()


def _identity_columns(
    info: Mapping[str, Any], platform_id: Id, owner_id: Id, keys: KeyRing
) -> dict[str, Any]:
    """Return the columns that identify an owner.

    Raises: InvalidOwnerError.
    """
    errors = list(
        identity.identifier_errors(
            id_type=info["idType"],
            identifier=info["identifier"],
            country=info.get("countryOfIssuance"),
            within="personalInfo.",
        )
    )
    if errors:
        raise InvalidOwnerError(*errors)
    return {
        "personal_info": {name: value for name, value in info.items() if name != "identifier"},
        "identifier": keys.encrypt(
            info["identifier"].encode(), OWNER_IDENTIFIER.of(platform_id, owner_id)
        ),
    }


def _render(row: Row[*tuple[Any, ...]], keys: KeyRing | None) -> BeneficialOwnerResource:
    info = dict(row.personal_info)
    info["countryOfIssuance"] = identity.issued_in(info["idType"], info.get("countryOfIssuance"))
    if keys is not None:
        info["identifier"] = _identifier(row.identifier, row.platform_id, row.id, keys)
    return BeneficialOwnerResource(
        id=row.id,
        customer_id=row.customer_id,
        roles=row.roles,
        ownership_percentage=row.ownership_percentage,
        personal_info=PersonalInfoResource(**info),
        kyc_status=row.kyc_status,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
