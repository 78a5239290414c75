"""The accounts of a payment: internal ones of customers and platforms, external ones of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.projections import accounts
from cardledger.ledger.projections.transfers import Transfer
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.common import public_id
from cardledger.schema.wire.customers.account_variants import VARIANTS

_INTERNAL: Final = tables.internal_accounts.c
_EXTERNAL: Final = tables.external_accounts.c
_CUSTOMER: Final = tables.customers.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """An account of a platform, or of one of its customers; `owner_id` is the one or the other."""

    id: Id
    owner_id: Id
    platform_id: Id
    currency: str
    status: str
    platform_customer_id: str
    is_ready: bool  # Its owner is the platform, or a customer whose identity is approved.

    @property
    def is_of_platform(self) -> bool:
        """Whether it belongs to the platform itself."""
        return self.owner_id == self.platform_id

    @property
    def is_active(self) -> bool:
        """Whether it can send and receive."""
        return self.status == accounts.ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalParty(Party):
    """An internal account; amounts are minor units of its currency."""

    balance: int
    owed: int
    uma_address: str | None = None  # Of the customer.

    @property
    def spendable(self) -> int:
        """What can leave the account: what it owes stays."""
        return max(self.balance - self.owed, 0)

    @property
    def public_id(self) -> str:
        """The id on the wire."""
        return public_id("InternalAccount", self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalParty(Party):
    """An external account; `rails` are those by which it can be paid."""

    rails: Sequence[str]

    @property
    def public_id(self) -> str:
        """The id on the wire."""
        return public_id("ExternalAccount", self.id)


async def internal(
    connection: AsyncConnection, *, platform_id: Id, account_id: Id
) -> InternalParty | None:
    """Return an internal account of the platform or of its customers; None: there is none."""
    rows = await connection.execute(
        select(
            _INTERNAL.customer_id,
            _INTERNAL.currency,
            _INTERNAL.status,
            _INTERNAL.balance,
            _INTERNAL.owed,
            _CUSTOMER.platform_customer_id,
            _CUSTOMER.kyc_status,
            _CUSTOMER.is_deleted,
            _CUSTOMER.uma_address,
        )
        .join_from(
            tables.internal_accounts,
            tables.customers,
            _CUSTOMER.id == _INTERNAL.customer_id,
            isouter=True,
        )
        .where(_INTERNAL.id == account_id, _INTERNAL.platform_id == platform_id)
    )
    row = rows.one_or_none()
    if row is None:
        return None
    return InternalParty(
        id=account_id,
        owner_id=row.customer_id,
        platform_id=platform_id,
        currency=row.currency,
        status=row.status,
        platform_customer_id=row.platform_customer_id or public_id("PlatformConfig", platform_id),
        is_ready=_is_ready(row),
        balance=row.balance,
        owed=row.owed,
        uma_address=row.uma_address,
    )


async def external(
    connection: AsyncConnection, *, platform_id: Id, account_id: Id
) -> ExternalParty | None:
    """Return an external account of the platform or of its customers; None: there is none."""
    rows = await connection.execute(
        select(
            _EXTERNAL.customer_id,
            _EXTERNAL.currency,
            _EXTERNAL.status,
            _EXTERNAL.account_info,
            _CUSTOMER.platform_customer_id,
            _CUSTOMER.kyc_status,
            _CUSTOMER.is_deleted,
        )
        .join_from(
            tables.external_accounts,
            tables.customers,
            _CUSTOMER.id == _EXTERNAL.customer_id,
            isouter=True,
        )
        .where(
            _EXTERNAL.id == account_id,
            _EXTERNAL.platform_id == platform_id,
            _EXTERNAL.deleted_at.is_(None),
        )
    )
    row = rows.one_or_none()
    if row is None:
        return None
    return ExternalParty(
        id=account_id,
        owner_id=row.customer_id or platform_id,
        platform_id=platform_id,
        currency=row.currency,
        status=row.status,
        platform_customer_id=row.platform_customer_id or public_id("PlatformConfig", platform_id),
        is_ready=_is_ready(row),
        rails=rails_of(row.account_info),
    )


async def is_external_side_active(connection: AsyncConnection, payment: Transfer) -> bool:
    """Return whether the external account of `payment`, if it has one, is there and is ACTIVE."""
    account_id = payment.external_account_id
    if account_id is None:
        return True
    found = await external(connection, platform_id=payment.platform_id, account_id=account_id)
    return found is not None and found.is_active


async def currencies_of(
    connection: AsyncConnection, *, platform_id: Id, customer_id: Id
) -> Sequence[str]:
    """Return the currencies of the customer's internal accounts; none: there is no customer."""
    rows = await connection.execute(
        select(_CUSTOMER.currencies).where(
            _CUSTOMER.id == customer_id,
            _CUSTOMER.platform_id == platform_id,
            ~_CUSTOMER.is_deleted,
        )
    )
    return rows.scalar_one_or_none() or ()


def _is_ready(row: Any) -> bool:  # noqa: ANN401 - a row
    if row.platform_customer_id is None:
        return True
    return row.kyc_status == "APPROVED" and not row.is_deleted


# --- account details, pure ---------------------------------------------------------------------


def rails_of(info: Mapping[str, Any]) -> Sequence[str]:
    """Return the rails by which the account `info` can be paid; none for wallets."""
    chosen = info.get("rail")
    return (chosen,) if chosen else VARIANTS[info["accountType"]].rails
