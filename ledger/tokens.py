"""API tokens: who may call, and what they may do."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from ledger.ids import new_id
from ledger.secrets import KeyRing
from schema import tables

_MAX_CLIENT_ID: Final = 100


class Permission(StrEnum):
    """What a token allows; none includes another, except that every token may read."""

    VIEW = "VIEW"
    TRANSACT = "TRANSACT"
    MANAGE = "MANAGE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token that was presented with its secret."""

    id: UUID
    platform_id: UUID
    permissions: frozenset[Permission]

    def allows(self, permission: Permission) -> bool:
        """Return whether this token may do what needs `permission`."""
        return permission is Permission.VIEW or permission in self.permissions


async def create(  # noqa: PLR0913 - a row, by name
    connection: AsyncConnection,
    *,
    platform_id: UUID,
    name: str,
    permissions: Iterable[str],
    keys: KeyRing,
    at: datetime | None = None,
) -> tuple[str, str]:
    """Make a token; returns its client id and its secret, which nobody can read again."""
    # Prefixes, so that a search for leaked secrets can know one when it sees it.
    client_id = f"clid_{secrets.token_hex(12)}"
    client_secret = f"clsk_{secrets.token_urlsafe(32)}"
    await connection.execute(
        tables.api_tokens.insert().values(
            id=new_id(),
            platform_id=platform_id,
            name=name,
            client_id=client_id,
            secret_hash=keys.hash_secret(client_secret),
            permissions=[Permission(permission).value for permission in permissions],
            created_at=at or datetime.now(UTC),
        )
    )
    return client_id, client_secret


async def authenticate(
    connection: AsyncConnection, client_id: str, client_secret: str, keys: KeyRing
) -> Token | None:
    """Return the token of `client_id` when `client_secret` is its secret, else None."""
    presented = keys.hash_secret(client_secret)
    return await authenticate_hash(connection, client_id, presented)


async def authenticate_hash(
    connection: AsyncConnection, client_id: str, presented: bytes
) -> Token | None:
    """Return the token of `client_id` when `presented` is the hash of its secret, else None."""
    if not client_id.isascii() or not client_id.isprintable() or len(client_id) > _MAX_CLIENT_ID:
        return None  # Nothing that we ever made, and U+0000 would not even be a query.
    columns = tables.api_tokens.c
    rows = await connection.execute(
        select(columns.id, columns.platform_id, columns.permissions, columns.secret_hash).where(
            columns.client_id == client_id
        )
    )
    row = rows.one_or_none()
    # An unknown client costs the same comparison as a wrong secret.
    known = row.secret_hash if row is not None else bytes(len(presented))
    if not secrets.compare_digest(known, presented) or row is None:
        return None
    return Token(
        id=row.id,
        platform_id=row.platform_id,
        permissions=frozenset(map(Permission, row.permissions)),
    )
