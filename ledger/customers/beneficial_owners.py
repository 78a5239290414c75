"""Beneficial owners: who owns or controls a business, and by how much.

An owner is `PENDING` until its business is decided. Its tax number is encrypted at rest; it is
shown where owners themselves are read, and nowhere else: not inside a customer, whose whole is
sent to webhooks and kept with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import Row, Text, func, select, type_coerce
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage import paging
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers import identity
from cardledger.schema.wire.customers.beneficial_owners import (
    WHOLE,
    BeneficialOwnerResource,
    PersonalInfoResource,
)
from cardledger.schema.wire.customers.people import KycStatus
from cardledger.schema.wire.errors import FieldError

_OWNERS: Final = tables.beneficial_owners.c
_BUSINESSES: Final = tables.customers.c

_OWNER: Final = select(tables.beneficial_owners)

_OWNED: Final = "UBO"
_UNDECIDED: Final = ("UNVERIFIED", "PENDING")
_BY_SUFFIX: Final[Mapping[str, KycStatus]] = {"001": "PENDING", "002": "REJECTED"}
"""What the last three characters of an owner's last name ask of the sandbox."""


class UnknownBusinessError(Exception):
    """The platform has no such customer, or has deleted it."""


class NotABusinessError(Exception):
    """The customer is a person: nobody owns a part of one."""


class InvalidError(Exception):
    """The owner cannot be as asked for; `errors` say what to mend."""

    def __init__(self, *errors: FieldError) -> None:
        super().__init__("invalid")
        self.errors: Final[Sequence[FieldError]] = errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Somebody who becomes an owner; `personal_info` has the names of the wire."""

    customer_id: Id
    roles: Sequence[str]
    ownership_percentage: Decimal
    personal_info: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to change about an owner: None stays; in `personal_info`, None takes away."""

    roles: Sequence[str] | None = None
    ownership_percentage: Decimal | None = None
    personal_info: Mapping[str, Any] | None = None


def decided_status(last_name: str) -> KycStatus:
    """Return how an owner stands when its business is decided: its name's end says so."""
    return _BY_SUFFIX.get(last_name[-3:], "APPROVED")


async def create(
    connection: AsyncConnection, *, platform_id: Id, owner: Owner, keys: KeyRing, at: datetime
) -> BeneficialOwnerResource:
    """Add an owner to a business.

    Raises: UnknownBusinessError, NotABusinessError, InvalidError; then nothing has been written.
    """
    await _lock(connection, platform_id, owner.customer_id)
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
        **_kept(owner.personal_info, keys),
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
    """Return one page of the owners of a business: none where there is no such business."""
    return await paging.read(
        connection,
        _OWNER,
        table=tables.beneficial_owners,
        matching=[_OWNERS.platform_id == platform_id, _OWNERS.customer_id == customer_id],
        wanted=wanted,
        item=lambda row: _render(row, keys),
        count_limit=None,  # The interface promises `totalCount` here.
    )


async def of_customers(
    connection: AsyncConnection, customer_ids: Sequence[Id]
) -> dict[Id, list[BeneficialOwnerResource]]:
    """Return the owners of each business among `customer_ids`, without their tax numbers.

    The caller has made sure that they are the platform's own.
    """
    rows = await connection.execute(
        _OWNER.where(_OWNERS.customer_id.in_(customer_ids)).order_by(_OWNERS.id)
    )
    found: dict[Id, list[BeneficialOwnerResource]] = {}
    for row in rows.all():
        found.setdefault(row.customer_id, []).append(_render(row, None))
    return found


async def change(  # noqa: PLR0913 - whose, which, and what
    connection: AsyncConnection,
    *,
    platform_id: Id,
    owner_id: Id,
    change: Change,
    keys: KeyRing,
    at: datetime,
) -> BeneficialOwnerResource | None:
    """Change an owner; None when the platform has no such owner.

    What is changed is not judged again: an owner that is decided stays so.
    Raises: UnknownBusinessError, InvalidError; then nothing has been written.
    """
    found = await connection.execute(
        select(_OWNERS.customer_id).where(
            _OWNERS.id == owner_id, _OWNERS.platform_id == platform_id
        )
    )
    customer_id = found.scalar_one_or_none()
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
        said = before["personal_info"] | {
            "identifier": keys.decrypt(before["identifier"]).decode(),
            **change.personal_info,
        }
        values |= _kept({name: one for name, one in said.items() if one is not None}, keys)
    await _check_share(connection, before | values)
    await connection.execute(
        tables.beneficial_owners.update().where(_OWNERS.id == owner_id).values(**values)
    )
    return await get(connection, platform_id=platform_id, owner_id=owner_id, keys=keys)


async def decide(connection: AsyncConnection, *, customer_id: Id, at: datetime) -> None:
    """Decide on every owner of a business that is decided and locked."""
    rows = await connection.execute(
        select(_OWNERS.id, _OWNERS.kyc_status, _OWNERS.personal_info)
        .where(_OWNERS.customer_id == customer_id, _OWNERS.kyc_status.in_(_UNDECIDED))
        .order_by(_OWNERS.id)
    )
    for row in rows.all():
        status = decided_status(row.personal_info["lastName"])
        if status != row.kyc_status:
            await connection.execute(
                tables.beneficial_owners.update()
                .where(_OWNERS.id == row.id)
                .values(kyc_status=status, updated_at=at)
            )


async def _lock(connection: AsyncConnection, platform_id: Id, customer_id: Id) -> None:
    """Let nobody else change the business or its owners until the end.

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
    """Hold beneficial owners to the whole of their business.

    Only shares of those with the role UBO are added up: who directs or controls a business may
    say how much of it he has, and may have it through one of them.
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
        message = f"must be at most {left.normalize():f}: the rest belongs to other UBOs"
        raise InvalidError(FieldError(field="ownershipPercentage", message=message))


def _kept(info: Mapping[str, Any], keys: KeyRing) -> dict[str, Any]:
    """Return the columns that say who an owner is.

    Raises: InvalidError.
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
        raise InvalidError(*errors)
    return {
        "personal_info": {name: said for name, said in info.items() if name != "identifier"},
        "identifier": keys.encrypt(info["identifier"].encode()),
    }


def _render(row: Row[*tuple[Any, ...]], keys: KeyRing | None) -> BeneficialOwnerResource:
    info = dict(row.personal_info)
    info["countryOfIssuance"] = identity.issued_in(info["idType"], info.get("countryOfIssuance"))
    if keys is not None:
        info["identifier"] = keys.decrypt(row.identifier).decode()
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
