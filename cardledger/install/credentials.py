"""The secrets of an installation: one private file in its data directory.

Losing the secret key makes everything sealed with it unreadable, so it lives as long as the
database. A token belongs to a database: when the directory is used with another one, the tokens
of both are kept.
"""

import asyncio
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from cardledger.config.errors import USAGE, CommandError
from cardledger.config.settings import Settings, key_list, secret_of
from cardledger.install.ready_file import write_private
from cardledger.ledger.platforms import api_tokens, console_tickets
from cardledger.ledger.platforms import registry as platforms
from cardledger.ledger.platforms.scopes import Permission
from cardledger.ledger.storage import database_clock
from cardledger.ledger.storage.engines import async_engine, driver_async
from cardledger.ledger.storage.secrets.key_ring import MIN_KEY_LENGTH, KeyRing, ServerKey
from cardledger.schema.ids import Id
from cardledger.schema.roles import Role

FILE: Final = "credentials.json"
SANDBOX: Final = "sandbox"

SANDBOX_CURRENCIES: Final = ("USD", "USDC", "USDB")
"""The currencies that a platform of a sandbox starts with, as in the interface."""

_CURRENCIES: Final = ("USD",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An API token with its secret, and the platform it is for."""

    platform_id: str
    client_id: str
    client_secret: str


@dataclass(slots=True, kw_only=True)
class Credentials:
    """What `credentials.json` keeps."""

    path: Path
    secret_key: str | None = None  # None: it comes from CARDLEDGER_SECRET_KEY.
    role_passwords: dict[Role, str] = field(default_factory=dict)
    access: list[Access] = field(default_factory=list)  # The last one used comes first.

    def save(self) -> None:
        """Write the file."""
        kept: dict[str, Any] = {"secretKey": self.secret_key} | {
            _name_of(role): password for role, password in self.role_passwords.items()
        }
        if self.access:
            current, *others = self.access
            kept |= {
                "clientId": current.client_id,
                "clientSecret": current.client_secret,
                "platformId": current.platform_id,
                "others": [asdict(access) for access in others],
            }
        content = {name: value for name, value in kept.items() if value}
        write_private(self.path, json.dumps(content, indent=2) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The platform that `up` works for, as its callers and webhook receivers need to know it."""

    access: Access
    public_key: str
    webhook_secret: str
    is_new: bool


def load(data_dir: Path) -> Credentials:
    """Return what is kept in `data_dir`, nothing when there is no file.

    Raises: CommandError when the file cannot be understood.
    """
    path = data_dir / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return _parse(path, content)
    except FileNotFoundError:
        return Credentials(path=path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"cannot read {path}: {error!r}; restore it, or move it away and lose access to what it"
            " encrypts"
        ) from None


def secret_key(credentials: Credentials, given: str | None) -> str:
    """Return the key to use: the one `given`, else the one kept, else a new one that is kept."""
    if given is not None:
        return given
    if credentials.secret_key is None:
        credentials.secret_key = secrets.token_urlsafe(MIN_KEY_LENGTH)
        credentials.save()
    return credentials.secret_key


def known_key(settings: Settings) -> ServerKey | None:
    """Return the server key of the settings, else the one kept in the data directory, if any.

    Raises: CommandError when the file cannot be understood.
    """
    current = secret_of(settings.secret_key) or load(settings.data_dir).secret_key
    return None if current is None else with_others(settings, current)


def with_others(settings: Settings, current: str) -> ServerKey:
    """Return the server key `current` with the former and the next one of the settings."""
    former = key_list(secret_of(settings.former_secret_keys) or "")
    return ServerKey(
        current,
        former=former,
        next=secret_of(settings.next_secret_key),
        binds=settings.bind_secrets,
    )


def needed_key(settings: Settings) -> ServerKey:
    """Return the server key of the settings, else the one kept in the data directory.

    Raises: CommandError when it is not known here, or the file cannot be understood.
    """
    key = known_key(settings)
    if key is None:
        raise CommandError(
            "set CARDLEDGER_SECRET_KEY to the key of the API and the workers", code=USAGE
        )
    return key


def enter(credentials: Credentials, database_url: str, keys: KeyRing) -> Sandbox:
    """Return access to the sandbox's platform in a migrated database; made at the first time."""
    return asyncio.run(_enter(credentials, database_url, keys))


def create_platform(
    database_url: str, name: str, keys: KeyRing, *, currencies: Sequence[str] = _CURRENCIES
) -> Sandbox:
    """Set up a platform with a token that may do everything; its secret is shown here only."""

    async def run() -> Sandbox:
        engine = async_engine(database_url)
        try:
            async with engine.begin() as connection:
                access = await _create(connection, name, keys, currencies)
                return await _sandbox(connection, access, keys, is_new=True)
        finally:
            await engine.dispose()

    return asyncio.run(run())


def console_ticket(database_url: str, keys: KeyRing, client_id: str) -> str | None:
    """Return a ticket for a session of the console; None: there is no token `client_id`."""

    async def run() -> str | None:
        engine = async_engine(database_url)
        try:
            async with engine.begin() as connection:
                at = await database_clock.read_async(await driver_async(connection))
                return await console_tickets.create(
                    connection, client_id=client_id, keys=keys, at=at
                )
        finally:
            await engine.dispose()

    return asyncio.run(run())


async def _enter(credentials: Credentials, database_url: str, keys: KeyRing) -> Sandbox:
    engine = async_engine(database_url)
    try:
        async with engine.begin() as connection:
            access = await _known(connection, credentials, keys)
            is_new = access is None
            if access is None:
                access = await _create(connection, SANDBOX, keys, SANDBOX_CURRENCIES)
            sandbox = await _sandbox(connection, access, keys, is_new=is_new)
    finally:
        await engine.dispose()
    if credentials.access[:1] != [access]:
        credentials.access = [access, *(one for one in credentials.access if one != access)]
        credentials.save()
    return sandbox


async def _known(
    connection: AsyncConnection, credentials: Credentials, keys: KeyRing
) -> Access | None:
    for access in credentials.access:
        token = await api_tokens.authenticate(
            connection, access.client_id, access.client_secret, keys
        )
        if token is not None:
            return access
    return None


async def _create(
    connection: AsyncConnection, name: str, keys: KeyRing, currencies: Sequence[str]
) -> Access:
    platform = await platforms.create(
        connection, name=name, keys=keys, currencies=tuple(currencies)
    )
    client_id, client_secret = await api_tokens.create(
        connection, platform_id=platform.id, name=name, permissions=list(Permission), keys=keys
    )
    return Access(platform_id=str(platform.id), client_id=client_id, client_secret=client_secret)


async def _sandbox(
    connection: AsyncConnection,
    access: Access,
    keys: KeyRing,
    *,
    is_new: bool,
) -> Sandbox:
    platform_id = Id.parse(access.platform_id)
    return Sandbox(
        access=access,
        public_key=await platforms.public_key(connection, platform_id),
        webhook_secret=await platforms.webhook_secret(connection, platform_id, keys),
        is_new=is_new,
    )


def _name_of(role: Role) -> str:
    return f"{role}Password"


def _parse(path: Path, content: dict[str, Any]) -> Credentials:
    access = [Access(**one) for one in content.get("others", [])]
    if "clientId" in content:
        current = Access(
            platform_id=content["platformId"],
            client_id=content["clientId"],
            client_secret=content["clientSecret"],
        )
        access = [current, *access]
    return Credentials(
        path=path,
        secret_key=content.get("secretKey"),
        role_passwords={
            role: content[_name_of(role)] for role in Role if _name_of(role) in content
        },
        access=access,
    )
