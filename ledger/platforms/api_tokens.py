"""API tokens: credentials of platforms, with permissions."""

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.ledger.platforms.scopes import NO_LIMITS, Limits, Permission, Token
from cardledger.ledger.storage import caps, paging
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import (
    LOST_WITHIN,
    KeyRing,
    PresentedSecret,
    Purpose,
)
from cardledger.ledger.storage.secrets.secret_hashes import TOKEN_SECRET, Rehash
from cardledger.schema import tables
from cardledger.schema.ids import Id
from cardledger.schema.wire.tokens import TokenResource

TOKEN_LIMIT: Final = 100
"""The most tokens a platform may have."""

USE_INTERVAL: Final = timedelta(minutes=1)
"""How often the use of a token is recorded."""

_MAX_CLIENT_ID: Final = 100
_STAMP_BYTES: Final = 16


_KNOWN: Final = {permission.value: permission for permission in Permission}
_KNOWN_BEFORE: Final = frozenset({Permission.VIEW, Permission.TRANSACT, Permission.MANAGE})
"""What releases before schema 0016 read; they fail on other names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """A token and the hashes of its secret, and of its former one while that counts."""

    token: Token
    secret_hash: bytes
    former_secret_hash: bytes | None = None
    former_secret_until: datetime | None = None

    def proves(self, presented: PresentedSecret, at: datetime) -> bool:
        """Return whether `presented` is a secret of the token, in constant time."""
        is_right = presented.proves(self.secret_hash)
        if self.former_secret_hash is None or self.former_secret_until is None:
            return is_right
        is_former = presented.proves(self.former_secret_hash)
        return is_right or (is_former and at < self.former_secret_until)

    @property
    def stamp(self) -> bytes:
        """What changes with the secret, and tells nothing of it: for what ends when it changes."""
        return _stamp(self.secret_hash)

    def stamp_of(self, presented: PresentedSecret) -> bytes | None:
        """Return the stamp of the secret that `presented` is; None: it is not the token's.

        That of a former secret ends when the secret does: see `has_stamp`.
        """
        for secret_hash in (self.secret_hash, self.former_secret_hash):
            if secret_hash is not None and presented.proves(secret_hash):
                return _stamp(secret_hash)
        return None

    def has_stamp(self, stamp: bytes, at: datetime) -> bool:
        """Return whether `stamp` is that of a secret that counts at `at`, in constant time."""
        is_right = compare_digest(stamp, self.stamp)
        if self.former_secret_hash is None or self.former_secret_until is None:
            return is_right
        is_former = compare_digest(stamp, _stamp(self.former_secret_hash))
        return is_right or (is_former and at < self.former_secret_until)

    def replacement(self, presented: PresentedSecret) -> Rehash | None:
        """Return the hash to store instead of one of a former server key or release."""
        if presented.is_current(self.secret_hash) or not presented.proves(self.secret_hash):
            return None
        return Rehash(TOKEN_SECRET, self.token.id, self.secret_hash, presented.digest)


Proof = Callable[[StoredToken, datetime], bool]
"""Returns whether a caller's secret, or the stamp of its session, counts for a token at a time.

Not a hash that was equal: the rotation of a server key replaces hashes of the same secret.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenToken:
    """The token of a caller, as a process may remember it for seconds, and the caller's proof."""

    token: Token
    proof: Proof


def _stamp(secret_hash: bytes) -> bytes:
    return sha256(b"stamp" + secret_hash).digest()[:_STAMP_BYTES]


_TOKEN: Final = select(
    tables.api_tokens.c.id,
    tables.api_tokens.c.name,
    tables.api_tokens.c.permissions,
    tables.api_tokens.c.scopes,
    tables.api_tokens.c.client_id,
    tables.api_tokens.c.expires_at,
    tables.api_tokens.c.allowed_addresses,
    tables.api_tokens.c.former_secret_until,
    tables.api_tokens.c.last_used_at,
    tables.api_tokens.c.created_at,
    func.coalesce(tables.api_tokens.c.updated_at, tables.api_tokens.c.created_at).label(
        "updated_at"
    ),
)
"""All columns but the hashes of secrets."""


class RevokedTokenError(Exception):
    """The token that gives access has been deleted, or the secret of its caller replaced."""


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
    limits: Limits = NO_LIMITS,
    granted_by: ProvenToken | None = None,
) -> TokenResource:
    """Create a token; only this result contains its secret.

    Raises: CapReachedError; RevokedTokenError when the token that grants it is not proven any more.
    """
    await caps.check(
        connection,
        tables.api_tokens,
        platform_id=platform_id,
        limit=TOKEN_LIMIT,
        noun="API tokens",
    )
    if granted_by is not None:
        await _check_not_revoked(connection, granted_by, at)
    granted = [Permission(permission) for permission in permissions]
    # Prefixes, by which scanners for leaked secrets recognize a token.
    client_id = f"clid_{secrets.token_hex(12)}"
    client_secret = _new_secret()
    rows = await connection.execute(
        tables.api_tokens.insert()
        .values(
            id=new_id(),
            platform_id=platform_id,
            name=name,
            client_id=client_id,
            secret_hash=presented(keys, client_id, client_secret).digest,
            permissions=[scope.value for scope in granted if scope in _KNOWN_BEFORE],
            scopes=[scope.value for scope in granted],
            expires_at=limits.expires_at,
            allowed_addresses=_listed(limits),
            created_at=at,
        )
        .returning(*_TOKEN.selected_columns)
    )
    return _render(rows.one(), client_secret)


async def rotate_secret(  # noqa: PLR0913 - each by name
    connection: AsyncConnection,
    *,
    token_id: Id,
    rotated_by: ProvenToken,
    keys: KeyRing,
    overlap: timedelta,
    at: datetime,
) -> TokenResource | None:
    """Replace the secret of a token of the same platform; only this result contains the new one.

    The present secret counts for `overlap` more. The new secret gives what the token has, so
    `rotated_by` must have it. None when there is no such token.
    A rotation within ten minutes of the last one replaces the secret of that one, which is taken
    for lost: the secret before it goes on counting.
    Raises: GrantExceededError, LimitsExceededError, RevokedTokenError.
    """
    rotating = rotated_by.token
    await caps.lock(connection, tables.api_tokens, rotating.platform_id)
    await _check_not_revoked(connection, rotated_by, at)
    columns = tables.api_tokens.c
    is_this = columns.id == token_id, columns.platform_id == rotating.platform_id
    rows = await connection.execute(
        _TOKEN.add_columns(
            columns.secret_hash, columns.former_secret_hash, columns.former_secret_until
        )
        .where(*is_this)
        .with_for_update()
    )
    row = rows.one_or_none()
    if row is None:
        return None
    rotating.check_grant(_permissions(row), _limits(row))
    is_lost = (
        row.former_secret_until is not None
        and row.former_secret_until > at
        and at - row.updated_at < LOST_WITHIN
    )
    present_hash = row.former_secret_hash if is_lost else row.secret_hash
    client_secret = _new_secret()
    changed = await connection.execute(
        tables.api_tokens.update()
        .where(*is_this)
        .values(
            secret_hash=presented(keys, row.client_id, client_secret).digest,
            former_secret_hash=present_hash if overlap else None,
            former_secret_until=at + overlap if overlap else None,
            updated_at=at,
        )
        .returning(*_TOKEN.selected_columns)
    )
    return _render(changed.one(), client_secret)


async def _check_not_revoked(
    connection: AsyncConnection, proven: ProvenToken, at: datetime
) -> None:
    """Check that the token still exists and that its caller's secret counts at `at`.

    The caller has locked the tokens of the platform: neither changes until the caller's end.
    Raises: RevokedTokenError.
    """
    stored = await _find(connection, tables.api_tokens.c.id == proven.token.id)
    if stored is None or not proven.proof(stored, at):
        raise RevokedTokenError


async def keep(connection: AsyncConnection, proven: ProvenToken, *, at: datetime) -> None:
    """Let the token be neither deleted nor rotated until the end of the database transaction.

    For what gives access and outlives the token: once its deletion is committed, or a rotation that
    ends the secret of its caller, none is made. Others may do so at the same time. No lock of the
    row: of those, any number in turn would keep a deletion waiting.
    Raises: RevokedTokenError when that is committed.
    """
    await caps.lock_shared(connection, tables.api_tokens, proven.token.platform_id)
    await _check_not_revoked(connection, proven, at)


async def record_uses(connection: AsyncConnection, uses: Mapping[Id, datetime]) -> None:
    """Record when tokens were used, each at most once a minute, whichever process says so."""
    columns = tables.api_tokens.c
    for token_id, at in sorted(uses.items()):
        await connection.execute(
            tables.api_tokens.update()
            .where(
                columns.id == token_id,
                columns.last_used_at.is_(None) | (columns.last_used_at <= at - USE_INTERVAL),
            )
            .values(last_used_at=at)
        )


def _new_secret() -> str:
    return f"clsk_{secrets.token_urlsafe(32)}"


def _listed(limits: Limits) -> list[str] | None:
    return None if limits.allowed_addresses is None else list(limits.allowed_addresses)


def _limits(row: Row[*tuple[Any, ...]]) -> Limits:
    return Limits(expires_at=row.expires_at, allowed_addresses=row.allowed_addresses)


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
    updated_at = func.coalesce(columns.updated_at, columns.created_at)
    since = ((columns.created_at, filters.created_from), (updated_at, filters.updated_from))
    until = ((columns.created_at, filters.created_to), (updated_at, filters.updated_to))
    matching += [column >= time for column, time in since if time is not None]
    matching += [column <= time for column, time in until if time is not None]
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


async def revoke(connection: AsyncConnection, client_id: str) -> Id | None:
    """Delete the token of `client_id`, of any platform, and return its id; None: there was none."""
    columns = tables.api_tokens.c
    platform_id = await connection.scalar(
        select(columns.platform_id).where(columns.client_id == client_id)
    )
    if platform_id is None:
        return None
    await caps.lock(connection, tables.api_tokens, platform_id)
    deleted: Id | None = await connection.scalar(
        tables.api_tokens.delete().where(columns.client_id == client_id).returning(columns.id)
    )
    return deleted


async def revoke_all(connection: AsyncConnection, platform_id: Id) -> None:
    """Delete every token of a platform, also those that are being created."""
    columns = tables.api_tokens.c
    await caps.lock(connection, tables.api_tokens, platform_id)
    # In the order in which `record_uses` changes them.
    found = await connection.scalars(
        select(columns.id)
        .where(columns.platform_id == platform_id)
        .order_by(columns.id)
        .with_for_update()
    )
    await connection.execute(tables.api_tokens.delete().where(columns.id.in_(list(found))))


async def delete(connection: AsyncConnection, *, platform_id: Id, token_id: Id) -> bool:
    """Delete the platform's token `token_id`; returns whether there was such a token.

    What it has created by then is committed: no token, agent, device code or webhook endpoint of
    its making appears afterwards.
    """
    columns = tables.api_tokens.c
    await caps.lock(connection, tables.api_tokens, platform_id)
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
        expires_at=row.expires_at,
        allowed_addresses=row.allowed_addresses,
        former_secret_until=row.former_secret_until,
        last_used_at=row.last_used_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _permissions(row: Row[*tuple[Any, ...]]) -> list[Permission]:
    """Return the permissions of a token, also of one that an earlier release has created."""
    if row.scopes is not None:
        # A later release may know further ones, which mean nothing here.
        return [_KNOWN[scope] for scope in row.scopes if scope in _KNOWN]
    before = {Permission.VIEW, *map(Permission, row.permissions)}
    if Permission.MANAGE in before:
        before |= {Permission.TOKENS, Permission.AGENTS}
    return [permission for permission in Permission if permission in before]


async def authenticate(
    connection: AsyncConnection, client_id: str, client_secret: str, keys: KeyRing
) -> Token | None:
    """Return the token of `client_id` when `client_secret` is its secret, else None."""
    stored = await find(connection, client_id)
    given = presented(keys, client_id, client_secret)
    return stored.token if stored and stored.proves(given, datetime.now(UTC)) else None


def presented(keys: KeyRing, client_id: str, client_secret: str) -> PresentedSecret:
    """Return what a caller presents as the secret of `client_id`."""
    return keys.presented(client_secret, Purpose.API_TOKEN, client_id)


async def find(connection: AsyncConnection, client_id: str) -> StoredToken | None:
    """Return the token of `client_id`, or None when there is no such token."""
    if not client_id.isascii() or not client_id.isprintable() or len(client_id) > _MAX_CLIENT_ID:
        return None  # Never issued; and PostgreSQL does not accept U+0000 in text.
    return await _find(connection, tables.api_tokens.c.client_id == client_id)


async def _find(connection: AsyncConnection, is_this: ColumnElement[bool]) -> StoredToken | None:
    columns = tables.api_tokens.c
    rows = await connection.execute(
        select(
            columns.id,
            columns.platform_id,
            columns.permissions,
            columns.scopes,
            columns.expires_at,
            columns.allowed_addresses,
            columns.secret_hash,
            columns.former_secret_hash,
            columns.former_secret_until,
        ).where(is_this)
    )
    row = rows.one_or_none()
    if row is None:
        return None
    token = Token(
        id=row.id,
        platform_id=row.platform_id,
        permissions=frozenset(_permissions(row)),
        limits=_limits(row),
    )
    return StoredToken(
        token=token,
        secret_hash=row.secret_hash,
        former_secret_hash=row.former_secret_hash,
        former_secret_until=row.former_secret_until,
    )
