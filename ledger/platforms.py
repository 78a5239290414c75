"""Platforms: the tenants, each with its own keys and its side of the books."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ledger import signing
from ledger.core.entries import Account
from ledger.ids import new_id
from ledger.secrets import KeyRing
from schema import tables

_SYSTEM_ACCOUNTS: Final = tuple(account for account in Account if account is not Account.CUSTOMER)

_PLATFORM: Final = select(
    tables.platforms.c.id,
    tables.platforms.c.name,
    tables.platforms.c.supported_currencies,
    tables.platforms.c.webhook_endpoint,
    tables.platforms.c.public_key,
    tables.platforms.c.created_at,
    tables.platforms.c.updated_at,
)
"""Everything but the secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A tenant, without its secrets."""

    id: UUID
    name: str
    supported_currencies: tuple[str, ...]
    webhook_endpoint: str | None
    public_key: str
    created_at: datetime
    updated_at: datetime


async def create(
    connection: AsyncConnection,
    *,
    name: str,
    keys: KeyRing,
    currencies: tuple[str, ...] = ("USD",),
    at: datetime | None = None,
) -> Platform:
    """Set up a platform: signing keys, and its side of the books in every currency."""
    at = at or datetime.now(UTC)
    private_key, public_key = signing.new_signing_key()
    platform = Platform(
        id=new_id(),
        name=name,
        supported_currencies=currencies,
        webhook_endpoint=None,
        public_key=public_key,
        created_at=at,
        updated_at=at,
    )
    await connection.execute(
        tables.platforms.insert().values(
            id=platform.id,
            name=name,
            supported_currencies=list(currencies),
            webhook_endpoint=None,
            signing_key=keys.encrypt(private_key),
            public_key=public_key,
            webhook_secret=keys.encrypt(signing.new_webhook_secret().encode()),
            created_at=at,
            updated_at=at,
        )
    )
    await connection.execute(
        tables.system_accounts.insert(),
        [
            {
                "id": new_id(),
                "platform_id": platform.id,
                "currency": currency,
                "kind": kind.value,
            }
            for currency in currencies
            for kind in _SYSTEM_ACCOUNTS
        ],
    )
    return platform


async def get(connection: AsyncConnection, platform_id: UUID) -> Platform:
    """Return the platform `platform_id`, which exists: a token was issued for it."""
    rows = await connection.execute(_PLATFORM.where(tables.platforms.c.id == platform_id))
    return _platform(rows.one())


async def set_webhook_endpoint(
    connection: AsyncConnection, platform_id: UUID, endpoint: str | None, *, at: datetime
) -> Platform:
    """Send the platform's webhooks to `endpoint` from now on; None keeps them unsent."""
    await connection.execute(
        tables.platforms.update()
        .where(tables.platforms.c.id == platform_id)
        .values(webhook_endpoint=endpoint, updated_at=at)
    )
    return await get(connection, platform_id)


async def public_key(connection: AsyncConnection, platform_id: UUID) -> str:
    """Return the PEM key that verifies the platform's webhooks."""
    return (await get(connection, platform_id)).public_key


async def webhook_secret(connection: AsyncConnection, platform_id: UUID, keys: KeyRing) -> str:
    """Return the `whsec_...` secret of the Standard Webhooks headers.

    Raises: SecretsError when the server key is not the one that encrypted it.
    """
    sealed = await connection.scalar(
        select(tables.platforms.c.webhook_secret).where(tables.platforms.c.id == platform_id)
    )
    return keys.decrypt(sealed or b"").decode()


def _platform(row: Row[*tuple[Any, ...]]) -> Platform:
    return Platform(
        id=row.id,
        name=row.name,
        supported_currencies=tuple(row.supported_currencies),
        webhook_endpoint=row.webhook_endpoint,
        public_key=row.public_key,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
