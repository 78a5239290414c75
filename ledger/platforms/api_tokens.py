"""API tokens: credentials of platforms, with permissions."""

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.storage import caps, paging
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.tokens import TokenResource

TOKEN_LIMIT: Final = 100
"""The most tokens a platform may have."""

_MAX_CLIENT_ID: Final = 100


class Permission(StrEnum):
    """What a token allows; no permission includes another."""

    VIEW = "VIEW"
    TRANSACT = "TRANSACT"
    MANAGE = "MANAGE"
    TOKENS = "TOKENS"  # Creates and deletes tokens.
    AGENTS = "AGENTS"  # Creates, connects, changes and deletes agents.


_KNOWN_BEFORE: Final = frozenset({Permission.VIEW, Permission.TRANSACT, Permission.MANAGE})
"""What releases before schema 0015 read; they fail on other names."""


class GrantExceededError(Exception):
    """A token would grant permissions that it lacks, which are `missing`; nothing was written."""

    def __init__(self, missing: Iterable[Permission]) -> None:
        self.missing: Final = sorted(missing)
        super().__init__(f"the token lacks {', '.join(self.missing)}")


def check_grant(wanted: Iterable[str], held: Collection[Permission]) -> None:
    """Check that a token with the permissions `held` may grant `wanted`: it grants what it has.

    Raises: GrantExceededError.
    """
    missing = {Permission(permission) for permission in wanted} - frozenset(held)
    if missing:
        raise GrantExceededError(missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """An authenticated token."""

    id: Id
    platform_id: Id
    permissions: frozenset[Permission]

    def allows(self, permission: Permission) -> bool:
        """Return whether this token may do what needs `permission`."""
        return permission in self.permissions


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """A token and the hash of its secret, which never changes."""

    token: Token
    secret_hash: bytes

    def proves(self, presented: bytes) -> bool:
        """Return whether `presented` is the hash of the token's secret, in constant time."""
        return secrets.compare_digest(self.secret_hash, presented)


_TOKEN: Final = select(
    tables.api_tokens.c.id,
    tables.api_tokens.c.name,
    tables.api_tokens.c.permissions,
    tables.api_tokens.c.scopes,
    tables.api_tokens.c.client_id,
    tables.api_tokens.c.created_at,
)
"""All columns but the hash of the secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFilters:
    """Filters of a list of tokens; None matches all, and times are inclusive."""

    name: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    updated_from: datetime | None = None
    updated_to: datetime | None = None


async def create(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    name: str,
    permissions: Iterable[str],
    keys: KeyRing,
    at: datetime | None = None,
) -> tuple[str, str]:
    """Create a token; returns its client id and its secret, which cannot be read again.

    Raises: CapReachedError.
    """
    issued = await issue(
        connection,
        platform_id=platform_id,
        name=name,
        permissions=permissions,
        keys=keys,
        at=at or datetime.now(UTC),
    )
    assert issued.client_secret is not None
    return issued.client_id, issued.client_secret


async def issue(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    platform_id: Id,
    name: str,
    permissions: Iterable[str],
    keys: KeyRing,
    at: datetime,
) -> TokenResource:
    """Create a token; only this result contains its secret.

    Raises: CapReachedError.
    """
    await caps.check(
        connection,
        tables.api_tokens,
        platform_id=platform_id,
        limit=TOKEN_LIMIT,
        noun="API tokens",
    )
    granted = [Permission(permission) for permission in permissions]
    # Prefixes, by which scanners for leaked secrets recognize a token.
    client_id = f"clid_{secrets.token_hex(12)}"
    client_secret = f"clsk_{secrets.token_urlsafe(32)}"
    rows = await connection.execute(
        tables.api_tokens.insert()
        .values(
            id=new_id(),
            platform_id=platform_id,
            name=name,
            client_id=client_id,
            secret_hash=keys.hash_secret(client_secret),
            permissions=[scope.value for scope in granted if scope in _KNOWN_BEFORE],
            scopes=[scope.value for scope in granted],
            created_at=at,
        )
        .returning(*_TOKEN.selected_columns)
    )
    return _render(rows.one(), client_secret)


async def get(
    connection: AsyncConnection, *, platform_id: Id, token_id: Id
) -> TokenResource | None:
    """Return the platform's token `token_id`, or None when it has no such token."""
    columns = tables.api_tokens.c
    rows = await connection.execute(
        _TOKEN.where(columns.id == token_id, columns.platform_id == platform_id)
    )
    row = rows.one_or_none()
    return None if row is None else _render(row)


async def page(
    connection: AsyncConnection, *, platform_id: Id, filters: TokenFilters, wanted: paging.Wanted
) -> paging.Page[TokenResource]:
    """Return one page of the platform's tokens."""
    columns = tables.api_tokens.c
    matching = [columns.platform_id == platform_id]
    if filters.name is not None:
        matching.append(columns.name == filters.name)
    # A token never changes, so it was last updated at its creation.
    since = [time for time in (filters.created_from, filters.updated_from) if time is not None]
    until = [time for time in (filters.created_to, filters.updated_to) if time is not None]
    matching += [columns.created_at >= time for time in since]
    matching += [columns.created_at <= time for time in until]
    return await paging.read(
        connection,
        _TOKEN,
        table=tables.api_tokens,
        matching=matching,
        wanted=wanted,
        item=_render,
    )


async def of_platform(connection: AsyncConnection, platform_id: Id) -> list[TokenResource]:
    """Return all tokens of a platform, newest first; there are at most `TOKEN_LIMIT`."""
    columns = tables.api_tokens.c
    rows = await connection.execute(
        _TOKEN.where(columns.platform_id == platform_id).order_by(
            columns.created_at.desc(), columns.id.desc()
        )
    )
    return [_render(row) for row in rows]


async def revoke(connection: AsyncConnection, client_id: str) -> bool:
    """Delete the token of `client_id`, of any platform; returns whether there was one."""
    columns = tables.api_tokens.c
    deleted = await connection.execute(
        tables.api_tokens.delete().where(columns.client_id == client_id)
    )
    return deleted.rowcount == 1


async def revoke_all(connection: AsyncConnection, platform_id: Id) -> None:
    """Delete every token of a platform."""
    await connection.execute(
        tables.api_tokens.delete().where(tables.api_tokens.c.platform_id == platform_id)
    )


async def delete(connection: AsyncConnection, *, platform_id: Id, token_id: Id) -> bool:
    """Delete the platform's token `token_id`; returns whether there was such a token."""
    columns = tables.api_tokens.c
    deleted = await connection.execute(
        tables.api_tokens.delete().where(columns.id == token_id, columns.platform_id == platform_id)
    )
    return deleted.rowcount == 1


def _render(row: Row[*tuple[Any, ...]], client_secret: str | None = None) -> TokenResource:
    return TokenResource(
        id=row.id,
        name=row.name,
        permissions=[permission.value for permission in _permissions(row)],
        client_id=row.client_id,
        client_secret=client_secret,
        created_at=row.created_at,
        updated_at=row.created_at,
    )


def _permissions(row: Row[*tuple[Any, ...]]) -> list[Permission]:
    """Return the permissions of a token, also of one that an earlier release has created."""
    if row.scopes is not None:
        return [Permission(scope) for scope in row.scopes]
    before = {Permission.VIEW, *map(Permission, row.permissions)}
    if Permission.MANAGE in before:
        before |= {Permission.TOKENS, Permission.AGENTS}
    return [permission for permission in Permission if permission in before]


async def authenticate(
    connection: AsyncConnection, client_id: str, client_secret: str, keys: KeyRing
) -> Token | None:
    """Return the token of `client_id` when `client_secret` is its secret, else None."""
    stored = await find(connection, client_id)
    return stored.token if stored and stored.proves(keys.hash_secret(client_secret)) else None


async def find(connection: AsyncConnection, client_id: str) -> StoredToken | None:
    """Return the token of `client_id`, or None when there is no such token."""
    if not client_id.isascii() or not client_id.isprintable() or len(client_id) > _MAX_CLIENT_ID:
        return None  # Never issued; and PostgreSQL does not accept U+0000 in text.
    columns = tables.api_tokens.c
    rows = await connection.execute(
        select(
            columns.id,
            columns.platform_id,
            columns.permissions,
            columns.scopes,
            columns.secret_hash,
        ).where(columns.client_id == client_id)
    )
    row = rows.one_or_none()
    if row is None:
        return None
    token = Token(
        id=row.id,
        platform_id=row.platform_id,
        permissions=frozenset(_permissions(row)),
    )
    return StoredToken(token=token, secret_hash=row.secret_hash)
